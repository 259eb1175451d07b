/**
 * `npm start`: runs the service, and beside it builds the pages if they are stale. The service responds meanwhile, and finds
 * them as soon as they are there; without them its API works all the same.
 */
import { spawn } from 'node:child_process';
import { constants, setPriority } from 'node:os';
import { fileURLToPath } from 'node:url';

const WEB = fileURLToPath(new URL('web.ts', import.meta.url));
const STDERR = 2;
const ORPHANED_LOOK_MS = 300;

// Its own output would get between the lines of the service on stdout, which scripts read.
const build = spawn(process.execPath, [WEB, '--if-stale'], { stdio: ['ignore', STDERR, STDERR] });
build.on('error', (error) => console.error(`the pages could not be built: ${error.message}`));
build.unref();
// The service has priority: on a machine with few cores both would be slow.
if (build.pid !== undefined) setPriority(build.pid, constants.priority.PRIORITY_BELOW_NORMAL);

// Some versions of npm hand a SIGTERM to the shell that they started this with, and not to this.
const { ppid } = process;
setInterval(() => {
  if (process.ppid !== ppid) process.kill(process.pid, 'SIGTERM');
}, ORPHANED_LOOK_MS).unref();

process.argv.splice(2, 0, 'serve');
await import('../src/cli/main.ts');
