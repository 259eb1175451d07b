import type { Page } from 'playwright-core';

/**
 * Starts the demo on the page of the guide, waits until a message of the demo is delivered, and returns to the guide.
 */
export async function startDemo(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Start the demo' }).click();
  await page
    .getByRole('article')
    .getByRole('button', { name: /delivered/ })
    .first()
    .waitFor();
  await page.goBack();
  await page.getByText(/The demo runs/).waitFor();
}
