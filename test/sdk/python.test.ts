/**
 * The tests of the Python SDK that need no packages of Python. `npm run test:python` runs all tests of the SDK and
 * installs the packages that they need; `.ci/run` always runs it.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync } from 'node:fs';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PYTHON = process.env['CONVOKE_PYTHON'] ?? 'python3';

const found = spawnSync(PYTHON, ['-c', 'import sys; sys.exit(sys.version_info < (3, 10))']).status === 0;
const skip = found ? false : `NOT RUN: the Python SDK needs ${PYTHON} 3.10 or later, and it is not here`;

/** Imports the package without its `__init__`, which would import other packages. */
const VECTORS = `
import json, sys, types
package = types.ModuleType("convoke_agents")
package.__path__ = ["sdk/python/src/convoke_agents"]
sys.modules["convoke_agents"] = package
from convoke_agents.verify import VerificationError, decode_secrets, verify_signature

def reason(check):
    try:
        check()
    except VerificationError as error:
        return error.reason
    return None

with open("vectors/signature.json", encoding="utf8") as file:
    vectors = json.load(file)
decided = [
    reason(lambda: verify_signature(case["body"].encode(), case["headers"], case["secrets"], now=lambda: case["now_s"]))
    for case in vectors["verify"]
]
refused = [reason(lambda: decode_secrets(secret)) for secret in vectors["invalid_secrets"]]
json.dump({"decided": decided, "expected": [case["reason"] for case in vectors["verify"]], "refused": refused}, sys.stdout)
`;

const COMPILE = `
import sys
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        compile(file.read(), path, "exec", dont_inherit=True)
`;

function python(code: string, ...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(PYTHON, ['-I', '-B', '-W', 'error', '-c', code, ...args], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  assert.equal(status, 0, stderr);
  return stdout;
}

describe('with nothing but the standard library', { skip }, () => {
  test('every file of Python compiles without a warning', () => {
    const files = globSync('{sdk,docs,examples,test}/**/*.py', { cwd: ROOT });
    assert(files.length > 30, `${files.length} files`);
    python(COMPILE, ...files);
  });

  test('a receiver decides as the vectors say', () => {
    const { decided, expected, refused } = JSON.parse(python(VECTORS)) as Record<string, (string | null)[]>;
    assert(decided!.length > 10);
    assert.deepEqual(decided, expected);
    assert.deepEqual(new Set(refused), new Set(['invalid_secret']));
  });
});
