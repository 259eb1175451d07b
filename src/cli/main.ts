#!/usr/bin/env node
/* The entry point, for any version of Node. The program needs a recent Node; an older Node would end with
   ERR_UNKNOWN_FILE_EXTENSION before any line of ours runs. So every Node can load this file: it is CommonJS (that is
   why package.json is beside it), without types, in old syntax. A recent Node continues in ./program. An older Node
   starts the Node that `npm ci` put into node_modules, with the same arguments, and exits with the exit code of that
   Node. */
(() => {
  /*
   * The directory for compiled code, which makes the next start faster. Node runs the code that it finds there. So the
   * result is null when anybody but this user and root could write the directory or replace it.
   */
  const cacheDirectory = () => {
    const { existsSync, lstatSync, mkdirSync, realpathSync } = require('fs');
    const path = require('path');
    try {
      const base = process.env.XDG_CACHE_HOME || path.join(require('os').homedir(), '.cache');
      // One by one: `recursive` never returns when the system refuses with ENOENT, as under /proc.
      const made = [base, path.join(base, 'convoke'), path.join(base, 'convoke/compiled')];
      for (const each of made) if (!existsSync(each)) mkdirSync(each, { mode: 0o700 });
      const directory = realpathSync(path.join(base, 'convoke/compiled'));
      // Only Windows has no getuid. There the profile of a user belongs to that user.
      if (!process.getuid) return directory;
      const user = process.getuid();
      for (let at = directory; ; at = path.dirname(at)) {
        const { uid, mode } = lstatSync(at);
        // In a directory with the sticky bit, such as /tmp, only the owner of an entry can replace that entry.
        const is_open_to_others = (mode & 0o022) !== 0 && (at === directory || (mode & 0o1000) === 0);
        if ((uid !== user && uid !== 0) || is_open_to_others) return null;
        if (at === path.dirname(at)) return directory;
      }
    } catch {
      return null;
    }
  };

  const { version, engines, optionalDependencies, private: is_clone } = require('../../package.json');
  const needed = String(engines.node);
  const running = process.versions.node.split('.').map(Number);
  const is_recent = needed.split('||').some((range) => {
    const from = range
      .replace(/[^0-9.]/g, '')
      .split('.')
      .map(Number);
    if (range.includes('^') && from[0] !== running[0]) return false;
    const i = from.findIndex((number, at) => number !== running[at]);
    return i === -1 || Number(running[i]) > Number(from[i]);
  });
  if (is_recent) {
    // The channel exists only when an older Node started this process. When that Node is killed, this process must end
    // too.
    process.once('disconnect', () => process.exit(1));
    if (process.channel) process.channel.unref();
    if (process.argv.length === 3 && /^(-V|--version)$/.test(process.argv[2] || '')) {
      // `watchOutput` does the same for the other commands. This fast way does not load its code.
      process.stdout.on('error', (error) => {
        if (error.code === 'EPIPE') return;
        process.stderr.write(`convoke: the output could not be written whole: ${error.message}\n`);
        process.exitCode = 1;
      });
      process.stdout.write(`${version}\n`);
      return;
    }
    // Node 22 would warn about its SQLite with every command.
    process.emitWarning = new Proxy(process.emitWarning.bind(process), {
      apply(emitWarning, self, args) {
        if (!String(args[0]).startsWith('SQLite is an experimental')) Reflect.apply(emitWarning, self, args);
      },
    });
    const directory = cacheDirectory();
    if (directory !== null) require('module').enableCompileCache(directory);
    void import('./program/program.ts').then((program) => program.main());
    return;
  }

  const fail = () => {
    process.stderr.write(
      `convoke: this is Node ${process.versions.node}, and ${needed} is needed; ` +
        `${is_clone ? 'run `npm ci` in the repository, which brings it, or ' : ''}install it from https://nodejs.org\n`,
    );
    process.exitCode = 1;
  };
  // Finds Node in the package that npm installed for this platform.
  const node = Object.keys(optionalDependencies || {})
    .map((name) => {
      try {
        const path = require.resolve(`${name}/package.json`);
        return require('path').join(path, '..', require(path).bin.node);
      } catch {
        return '';
      }
    })
    .find(Boolean);
  if (!node) return fail();
  const child = require('child_process').spawn(node, process.argv.slice(1), {
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
  });
  child.on('error', fail);
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => child.kill(signal));
  child.on('exit', (code = 1, signal = '') => {
    process.exit(signal ? 128 + require('os').constants.signals[signal] : code);
  });
})();
