import { createSocket } from 'node:dgram';

/** What a scripted name server does with a question: answer addresses, answer a failure, or say nothing. */
export type DnsAnswer = string[] | 'NXDOMAIN' | 'SERVFAIL' | 'mute';

export interface DnsQuestion {
  name: string;
  type: 'A' | 'AAAA';
}

export interface ScriptedDns {
  /** `address:port`, as `name_servers` wants it. */
  address: string;
  /** Every question that came, in order. */
  questions: DnsQuestion[];
  close(): Promise<void>;
}

const RCODES = { NXDOMAIN: 3, SERVFAIL: 2 };
const TYPES: Record<number, DnsQuestion['type']> = { 1: 'A', 28: 'AAAA' };

/** A name server on loopback (RFC 1035 over UDP) that answers what the script says. */
export async function startScriptedDns(script: (question: DnsQuestion) => DnsAnswer): Promise<ScriptedDns> {
  const socket = createSocket('udp4');
  const questions: DnsQuestion[] = [];
  socket.on('message', (query, { address, port }) => {
    const { name, end } = readName(query, 12);
    const type = TYPES[query.readUInt16BE(end)];
    if (type === undefined) return;
    questions.push({ name, type });
    const answer = script({ name, type });
    if (answer === 'mute') return;
    socket.send(respond(query.subarray(0, end + 4), answer), port, address);
  });
  await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
  return {
    address: `127.0.0.1:${socket.address().port}`,
    questions,
    close: () => new Promise((resolve) => socket.close(resolve)),
  };
}

function readName(query: Buffer, start: number): { name: string; end: number } {
  const labels: string[] = [];
  let at = start;
  for (; query[at] !== 0; at += query[at]! + 1) labels.push(query.toString('latin1', at + 1, at + 1 + query[at]!));
  return { name: labels.join('.').toLowerCase(), end: at + 1 };
}

function respond(question: Buffer, answer: Exclude<DnsAnswer, 'mute'>): Buffer {
  const addresses = Array.isArray(answer) ? answer : [];
  const head = Buffer.from(question);
  head.writeUInt16BE(0x8180 | (Array.isArray(answer) ? 0 : RCODES[answer]), 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(addresses.length, 6);
  head.writeUInt32BE(0, 8);
  const records = addresses.map((text) => {
    const address = text.includes(':') ? bytesOfIPv6(text) : Buffer.from(text.split('.').map(Number));
    const record = Buffer.alloc(12);
    record.writeUInt16BE(0xc00c, 0);
    record.writeUInt16BE(address.length === 4 ? 1 : 28, 2);
    record.writeUInt16BE(1, 4);
    record.writeUInt32BE(0, 6);
    record.writeUInt16BE(address.length, 10);
    return Buffer.concat([record, address]);
  });
  return Buffer.concat([head, ...records]);
}

function bytesOfIPv6(text: string): Buffer {
  const [head = '', tail = ''] = text.split('::');
  const groups = (part: string) => part.split(':').filter(Boolean);
  const zeros = 8 - groups(head).length - groups(tail).length;
  const all = [...groups(head), ...Array<string>(zeros).fill('0'), ...groups(tail)];
  return Buffer.from(all.map((group) => group.padStart(4, '0')).join(''), 'hex');
}
