import type { TestContext } from 'node:test';
import { messagesPath, type Service } from './service.ts';

/** Messages that a service accepted. */
export interface Traffic {
  accepted: number;
}

/** Sends messages to a meeting, so many in each second, until the test ends. What is refused or lost is not repeated. */
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
