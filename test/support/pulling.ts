/** A machine that pulls. A test makes its requests one by one. */
import assert from 'node:assert/strict';
import type { Pulled, PulledPush, PullInput, RegisteredInstance, RegisterInput } from '@convoke/sdk';
import type { Answer, Service } from './service.ts';

export const pullPath = (instance_id: string): string => `/api/v1/instances/${encodeURIComponent(instance_id)}/pull/`;

/** How many pulls wait at a node. */
export async function pullsWaiting(service: Service): Promise<number> {
  return Number(/^convoke_pulls_waiting (\d+)$/m.exec((await service.get('/metrics')).text)?.[1]);
}

export class PullingMachine {
  readonly service: Service;
  readonly instance_id: string;
  readonly webhook_secret: string;

  constructor(service: Service, instance_id: string, webhook_secret: string) {
    this.service = service;
    this.instance_id = instance_id;
    this.webhook_secret = webhook_secret;
  }

  /** Registers a new machine that pulls, and lets it join meetings. */
  static async start(
    service: Service,
    meeting_ids: string[],
    more: Partial<RegisterInput> = {},
  ): Promise<PullingMachine> {
    const instance_id = service.name('puller');
    const input = { instance_id, instance_name: 'A laptop', agent_ids: ['a'], transport: 'pull', ...more };
    const answer = await service.post<RegisteredInstance>('/api/v1/instances/register/', input);
    assert.equal(answer.status, 201, answer.text);
    for (const meeting_id of meeting_ids) await service.join(meeting_id, instance_id, ['a']);
    return new PullingMachine(service, instance_id, answer.body.webhook_secret as string);
  }

  /** Makes a pull, and returns its response, whatever its status is. */
  ask(input: PullInput = {}, headers: Record<string, string> = {}): Promise<Answer<Pulled>> {
    return this.service.post<Pulled>(pullPath(this.instance_id), input, headers);
  }

  /** Makes a pull that must succeed. */
  async pull(input: PullInput = {}): Promise<Pulled> {
    const answer = await this.ask(input);
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  }

  /** Makes a pull that must bring one push. */
  async next(input: PullInput = {}): Promise<PulledPush> {
    const { pushes } = await this.pull(input);
    assert.equal(pushes.length, 1);
    return pushes[0] as PulledPush;
  }

  /** Reports the result of a push; the response has the pushes that are ready. */
  report({ delivery_id, attempt }: PulledPush, status_code = 200): Promise<Pulled> {
    return this.pull({ results: [{ delivery_id, attempt, status_code }], wait_s: 0 });
  }
}
