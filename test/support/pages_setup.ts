/** Makes what the tests of the pages share, before the first file: `npm run test:pages` calls it. */
import chromium from '@sparticuz/chromium';
import { globalSetup as setUpRun, globalTeardown } from './run_setup.ts';

export async function globalSetup(): Promise<void> {
  await setUpRun();
  // The first call on a machine unpacks the browser. If a file of tests did that, another file could start the browser
  // while it is still being written.
  await chromium.executablePath();
}

export { globalTeardown };
