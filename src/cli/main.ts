#!/usr/bin/env node
/*
 * The way in, for whatever Node the machine has. The program needs a recent one, and an older one would end with
 * ERR_UNKNOWN_FILE_EXTENSION before any line of ours runs. So this file is one that every Node can load: CommonJS (hence
 * the package.json beside it), no types, old syntax. A recent Node goes on to ./program; an older one starts the Node that
 * `npm ci` put into node_modules, with the same arguments, and ends as that one ends.
 */
(() => {
  const versions = [require('../../package.json').engines.node, process.versions.node];
  const [needed, running] = versions.map((version) => {
    const [major, minor] = version.replace(/[^0-9.]/g, '').split('.');
    return Number(major) * 1000 + Number(minor);
  });
  if (Number(running) >= Number(needed)) {
    // Only under an older Node is there a channel: when that one is killed, this one must not be left behind.
    process.once('disconnect', () => process.exit(1));
    if (process.channel) process.channel.unref();
    // Ready in half the time, because what was compiled once is kept in the directory for temporary files.
    require('module').enableCompileCache();
    void import('./program/program.ts').then((program) => program.main());
    return;
  }

  const fail = () => {
    process.stderr.write(
      `convoke: this is Node ${versions[1]}, and ${versions[0]} is needed; ` +
        'run `npm ci` in the repository, which brings it, or install it from https://nodejs.org\n',
    );
    process.exitCode = 1;
  };
  let node = '';
  try {
    node = require('path').join(require.resolve('node/package.json'), '../bin/node');
  } catch {
    return fail();
  }
  const child = require('child_process').spawn(node, process.argv.slice(1), {
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
  });
  child.on('error', fail);
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => child.kill(signal));
  child.on('exit', (code = 1, signal = '') => {
    process.exit(signal ? 128 + require('os').constants.signals[signal] : code);
  });
})();
