import { createSocket } from 'node:dgram';

/** What a scripted name server does with a question: returns addresses, returns a failure, or does not respond. */
export type DnsAnswer = string[] | 'NXDOMAIN' | 'SERVFAIL' | 'mute' | DnsReply | DnsReply[];

/** An unusual response. A list of them is sent one after the other. */
export interface DnsReply {
  addresses: string[];
  /** A chain of names: the requested name is an alias of the first name, and so on. The last name has the addresses. */
  aliases?: string[];
  /** The server responds when this resolves. */
  after?: Promise<unknown>;
  /** Forges the response: with a wrong id, for another question, or from another port. */
  forged?: 'id' | 'question' | 'port';
  /** Marks the response as truncated: the rest would be available over TCP, where this server does not listen. */
  truncated?: boolean;
}

export interface DnsQuestion {
  /** A question that is repeated, because its response was late, has the same id again. */
  id: number;
  name: string;
  type: 'A' | 'AAAA';
}

export interface ScriptedDns {
  /** `address:port`, as `name_servers` wants it. */
  address: string;
  /** Every question, in the order of arrival. */
  questions: DnsQuestion[];
  /** How many questions there were, without repeats. A busy machine may repeat a question. */
  readonly asked: number;
  close(): Promise<void>;
}

const RCODES = { NXDOMAIN: 3, SERVFAIL: 2 };
const [A, CNAME, AAAA] = [1, 5, 28];
const TYPES: Record<number, DnsQuestion['type']> = { [A]: 'A', [AAAA]: 'AAAA' };

/** A name server on loopback (RFC 1035 over UDP) that responds as the script says. */
export async function startScriptedDns(script: (question: DnsQuestion) => DnsAnswer): Promise<ScriptedDns> {
  const socket = createSocket('udp4');
  const elsewhere = createSocket('udp4');
  let closed = false;
  const questions: DnsQuestion[] = [];
  socket.on('message', (query, { address, port }) => {
    const { name, end } = readName(query, 12);
    const type = TYPES[query.readUInt16BE(end)];
    if (type === undefined) return;
    const question = { id: query.readUInt16BE(0), name, type };
    questions.push(question);
    const answer = script(question);
    if (answer === 'mute') return;
    const replies = isReplies(answer) ? answer : [answer];
    for (const reply of replies) {
      const catches: Partial<DnsReply> = isReply(reply) ? reply : {};
      const message = respond(query.subarray(0, end + 4), reply);
      void Promise.resolve(catches.after).then(() => {
        if (!closed) (catches.forged === 'port' ? elsewhere : socket).send(message, port, address);
      });
    }
  });
  await new Promise<void>((resolve) => elsewhere.bind(0, '127.0.0.1', resolve));
  await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
  return {
    address: `127.0.0.1:${socket.address().port}`,
    questions,
    get asked() {
      return new Set(questions.map(({ type, id }) => `${type} ${id}`)).size;
    },
    close: async () => {
      closed = true;
      elsewhere.close();
      await new Promise<void>((resolve) => socket.close(resolve));
    },
  };
}

/**
 * A script that answers both questions of a lookup at the same time, also when they are repeated. A lookup waits only a
 * quarter of a second for its second answer, and a busy machine may need longer between two answers.
 */
export function together(a: string[], aaaa: string[]): (question: DnsQuestion) => DnsAnswer {
  const asked = { A: 0, AAAA: 0 };
  const rounds: PromiseWithResolvers<void>[] = [];
  return ({ type }) => {
    const n = asked[type]++;
    const round = (rounds[n] ??= Promise.withResolvers<void>());
    if (asked.A > n && asked.AAAA > n) round.resolve();
    return { addresses: type === 'A' ? a : aaaa, after: round.promise };
  };
}

function readName(query: Buffer, start: number): { name: string; end: number } {
  const labels: string[] = [];
  let at = start;
  for (; query[at] !== 0; at += query[at]! + 1) labels.push(query.toString('latin1', at + 1, at + 1 + query[at]!));
  return { name: labels.join('.').toLowerCase(), end: at + 1 };
}

function isReply(answer: DnsAnswer | DnsReply): answer is DnsReply {
  return typeof answer === 'object' && !Array.isArray(answer);
}

function isReplies(answer: DnsAnswer): answer is DnsReply[] {
  return Array.isArray(answer) && typeof answer[0] === 'object';
}

function respond(question: Buffer, answer: string[] | 'NXDOMAIN' | 'SERVFAIL' | DnsReply): Buffer {
  const reply: DnsReply = isReply(answer) ? answer : { addresses: Array.isArray(answer) ? answer : [] };
  const { addresses, aliases = [], forged, truncated = false } = reply;
  const head = Buffer.from(question);
  if (forged === 'id') head.writeUInt16BE(head.readUInt16BE(0) ^ 1, 0);
  // Changes the first letter of the name in the question.
  if (forged === 'question') head[13]! ^= 2;
  const rcode = typeof answer === 'string' ? RCODES[answer] : 0;
  head.writeUInt16BE(0x8180 | (truncated ? 0x0200 : 0) | rcode, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(aliases.length + addresses.length, 6);
  head.writeUInt32BE(0, 8);
  // The first record is for the requested name. Each further record is for the alias in the previous record.
  let owner = Buffer.from([0xc0, 0x0c]);
  const records: Buffer[] = [];
  for (const alias of aliases) {
    const name = nameOf(alias);
    records.push(recordOf(owner, CNAME, name));
    owner = name;
  }
  for (const text of addresses) {
    const address = text.includes(':') ? bytesOfIPv6(text) : Buffer.from(text.split('.').map(Number));
    records.push(recordOf(owner, address.length === 4 ? A : AAAA, address));
  }
  return Buffer.concat([head, ...records]);
}

function recordOf(owner: Buffer, type: number, data: Buffer): Buffer {
  const fields = Buffer.alloc(10);
  fields.writeUInt16BE(type, 0);
  fields.writeUInt16BE(1, 2);
  fields.writeUInt16BE(data.length, 8);
  return Buffer.concat([owner, fields, data]);
}

function nameOf(text: string): Buffer<ArrayBuffer> {
  const labels = text.split('.').map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]));
  return Buffer.concat([...labels, Buffer.from([0])]);
}

function bytesOfIPv6(text: string): Buffer {
  const [head = '', tail = ''] = text.split('::');
  const groups = (part: string) => part.split(':').filter(Boolean);
  const zeros = 8 - groups(head).length - groups(tail).length;
  const all = [...groups(head), ...Array<string>(zeros).fill('0'), ...groups(tail)];
  return Buffer.from(all.map((group) => group.padStart(4, '0')).join(''), 'hex');
}
