/** `convoke invite` and `convoke invites`: real processes, with a service. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConvokeClient, type Invite } from '@convoke/sdk';
import { convoke, serve, stop, temporaryDirectory } from '../support/command_line.ts';

test('an invite is made, listed, redeemed by anybody with its link, and revoked', async (t) => {
  const service = await serve(temporaryDirectory(t));
  t.after(() => stop(service, 'SIGKILL'));
  const env = { CONVOKE_URL: service.url };
  const made = await convoke(['invite', 'standup-42', 'retro', '--agent', 'anna', '--expires-in', '10m'], { env });
  assert.equal(made.code, 0, made.stderr);
  const link = made.stdout.trim();
  assert.match(link, new RegExp(`^${service.url}/invite/[\\w-]{43}$`));
  // Where Convoke is not installed, npx would run a stranger's package, with the link.
  assert.match(made.stderr, /On the machine of the agent, where Convoke is installed:\n/);
  assert.ok(made.stderr.includes(`npx convoke connect ${link} --to `), made.stderr);
  assert.match(made.stderr, /Only this machine reaches the service at this address: give --url the address/);

  const redeemed = await new ConvokeClient({ base_url: service.url }).redeemInvite(link);
  assert.deepEqual([redeemed.meeting_ids, redeemed.agent_ids], [['standup-42', 'retro'], ['anna']]);
  const other = JSON.parse(
    (await convoke(['invite', 'standup-42', '--agent', 'ben', '--instance', 'box', '--json'], { env })).stdout,
  ) as Invite;
  assert.equal(Date.parse(other.expires_at) - Date.parse(other.created_at), 3_600_000);
  const refused = await convoke(['invites', 'revoke', redeemed.invite_id], { env });
  assert.deepEqual([refused.code, /invite_redeemed/.test(refused.stderr)], [4, true]);
  assert.equal((await convoke(['invites', 'revoke', other.invite_id], { env })).code, 0);
  const { stdout } = await convoke(['invites'], { env });
  assert.match(stdout, /^INVITE .*\ninv_\w{12}  ben .* box .* revoked .*\ninv_\w{12}  anna .* redeemed .*\n$/);
  assert.ok(!stdout.includes(link.slice(-43)));

  const wrong = await convoke(['invite', 'm', '--agent', 'a', '--expires-in', '25h'], { env });
  assert.deepEqual([wrong.code, /a duration from 1m to 24h/.test(wrong.stderr)], [2, true]);
});

test('the link has the public URL of the service, whatever --url is, and the advice names what to change', async (t) => {
  const service = await serve(temporaryDirectory(t), { flags: ['--public-url', 'http://localhost:81/base'] });
  t.after(() => stop(service, 'SIGKILL'));
  const { stdout, stderr } = await convoke(['invite', 'm', '--agent', 'anna', '--url', service.url]);
  assert.match(stdout, /^http:\/\/localhost:81\/base\/invite\/[\w-]{43}\n$/);
  assert.match(
    stderr,
    /\nOnly this machine .* give CONVOKE_PUBLIC_URL of the service the address for other machines\.\n$/,
  );
});
