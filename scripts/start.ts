/**
 * `npm start`: runs the service, and at the same time builds the pages if they are stale. The service finds the pages
 * as soon as they are there, and its API works without them.
 */
import { spawn } from 'node:child_process';
import { constants, setPriority } from 'node:os';
import { fileURLToPath } from 'node:url';

const WEB = fileURLToPath(new URL('web.ts', import.meta.url));
const STDERR = 2;
const ORPHANED_LOOK_MS = 300;

// Keeps the output of the build off stdout, where scripts read the lines of the service.
const build = spawn(process.execPath, [WEB, '--if-stale'], { stdio: ['ignore', STDERR, STDERR] });
build.on('error', (error) => console.error(`the pages could not be built: ${error.message}`));
build.unref();
// The service has priority, because the build would slow it down on a machine with few cores.
if (build.pid !== undefined) setPriority(build.pid, constants.priority.PRIORITY_BELOW_NORMAL);

// Some versions of npm send SIGTERM to the shell that runs this process, and not to this process.
const { ppid } = process;
setInterval(() => {
  if (process.ppid !== ppid) process.kill(process.pid, 'SIGTERM');
}, ORPHANED_LOOK_MS).unref();

process.argv.splice(2, 0, 'serve');
await import('../src/cli/main.ts');
