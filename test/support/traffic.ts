import type { TestContext } from 'node:test';
import { messagesPath, type Service } from './service.ts';

/** Messages that a service accepted. */
export interface Traffic {
  accepted: number;
}

/** Sends `per_s` messages a second to a meeting, until the test ends. A refused or lost message is not repeated. */
export function startTraffic(t: TestContext, service: Service, meeting_id: string, per_s: number): Traffic {
  const traffic: Traffic = { accepted: 0 };
  const send = async (): Promise<void> => {
    const { status } = await service.post(messagesPath(meeting_id), { message: { content: 'traffic' } });
    if (status === 201) traffic.accepted++;
  };
  const timer = setInterval(() => void send().catch(() => {}), 1000 / per_s);
  t.after(() => clearInterval(timer));
  return traffic;
}
