/**
 * The senders: raw sockets, each with a prepared request in which only digits change. Without a rate, every connection
 * sends its next request as soon as the response arrives. With a rate, messages leave by a timetable, even while
 * responses are late.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { serveCommands } from './channel.ts';
import { type Distribution, nowUs, Samples } from '../measure/figures.ts';
import { ID_DIGITS } from './fleet.ts';
import {
  COUNT_DIGITS,
  placesOf,
  type Places,
  type Request,
  requestText,
  SENT_AT_DIGITS,
  writeDigits,
} from './request.ts';

export interface Load {
  /** The ports of the nodes. The first connection goes to the first node, the next connection to the next node. */
  ports: number[];
  meetings: number;
  /** The number of the first meeting; 0 when absent. */
  first_meeting?: number;
  connections: number;
  seconds: number;
  /** Messages per second; when absent, each response starts the next message. */
  rate?: number;
  /** How many messages a request has; when absent, a request sends one message. */
  together?: number;
  /** How many agents of a meeting take turns as the only target of a message; when absent, a message is for all. */
  targets?: number;
  /** How many agents take turns as `from_agent`; when absent, a message has no `from_agent`. */
  speakers?: number;
  /** The request that another service than Convoke expects; absent for Convoke. */
  request?: Request;
  /** Whether `Sent` lists the accepted messages; not with `together`. */
  listed?: boolean;
}

/** The number of a message, and when it was sent, in microseconds of the clock of `nowUs`. */
export type SentMessage = [count: number, sent_us: number];

export interface Sent {
  sent: number;
  /** Messages that the response reports as stored. */
  accepted: number;
  refused: number;
  /**
   * The refused messages, by status. "closed": the service closed the connection. "in a list": the request succeeded,
   * and the service refused some of its messages.
   */
  refusals: Record<string, number>;
  first_us: number;
  /** Milliseconds from a request to its response, for requests that the service accepted. */
  answer_ms: Distribution;
  /** The longest delay of a message against the timetable. */
  late_ms_max: number;
  /** The accepted messages, when the load asks for the list; otherwise empty. */
  messages: SentMessage[];
}

const HEAD_END = Buffer.from('\r\n\r\n');
const RETRY_AFTER_MS = 20;
/** Svix and Outpost answer 202. */
const ACCEPTED = new Set(['200', '201', '202']);

let last_message = 0;

class Sender {
  readonly socket: Socket;
  readonly #request: Buffer;
  /** The places of the digits of each message in the request. */
  readonly #places: Places[];
  readonly #load: Load;
  readonly #run: Run;
  busy = false;
  #sent_us = 0;
  /** The number of the last message in the latest request. */
  #count = 0;
  #rest: Buffer | null = null;

  constructor(load: Load, port: number, run: Run) {
    this.#load = load;
    this.#run = run;
    const text = requestText(load, port);
    this.#request = Buffer.from(text);
    this.#places = placesOf(text, load.together ?? 1);
    this.socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.socket.on('data', (chunk) => this.#read(chunk));
    this.socket.on('error', () => this.socket.destroy());
    this.socket.on('close', () => run.lost(this));
  }

  send(): void {
    const { meetings, first_meeting = 0, targets, speakers } = this.#load;
    const request = this.#request;
    this.#sent_us = nowUs();
    for (const at of this.#places) {
      const count = last_message++;
      this.#count = count;
      writeDigits(request, at.meeting, ID_DIGITS, first_meeting + (count % meetings));
      writeDigits(request, at.count, COUNT_DIGITS, count);
      if (targets !== undefined) writeDigits(request, at.agent, ID_DIGITS, Math.floor(count / meetings) % targets);
      if (speakers !== undefined) writeDigits(request, at.speaker, ID_DIGITS, count % speakers);
      writeDigits(request, at.sent_at, SENT_AT_DIGITS, this.#sent_us);
    }
    this.busy = true;
    this.socket.write(request);
  }

  #read(data: Buffer): void {
    const chunk = this.#rest === null ? data : Buffer.concat([this.#rest, data]);
    this.#rest = null;
    const head_end = chunk.indexOf(HEAD_END);
    const head = head_end === -1 ? '' : chunk.toString('latin1', 0, head_end).toLowerCase();
    const length_at = head.indexOf('content-length: ');
    const length = length_at === -1 ? 0 : Number.parseInt(head.slice(length_at + 16, length_at + 28), 10);
    if (head_end === -1 || chunk.length < head_end + 4 + length) {
      this.#rest = chunk;
      return;
    }
    // A response without a request: the service closes this connection, because it was idle for too long.
    if (!this.busy) return;
    this.busy = false;
    const stored = this.#load.together === undefined ? 1 : chunk.toString('latin1').split('"status":201').length - 1;
    this.#run.answered(this, head.slice(9, 12), stored, [this.#count, this.#sent_us]);
  }
}

/** One load, from its beginning to its end. */
class Run {
  readonly #load: Load;
  readonly #answer_ms = new Samples();
  readonly #refusals: Record<string, number> = {};
  readonly #done = Promise.withResolvers<void>();
  readonly #senders: Sender[] = [];
  readonly #idle: Sender[] = [];
  readonly #messages: SentMessage[] = [];
  #sent = 0;
  #accepted = 0;
  #late_ms_max = 0;
  #in_flight = 0;
  #end_us = 0;

  constructor(load: Load) {
    this.#load = load;
  }

  async play(): Promise<Sent> {
    const senders = this.#senders;
    for (let i = 0; i < this.#load.connections; i++) this.#connect();
    await Promise.all(senders.map(({ socket }) => once(socket, 'connect')));
    const first_us = nowUs();
    this.#end_us = first_us + this.#load.seconds * 1e6;
    if (this.#load.rate === undefined) for (const sender of senders) this.#start(sender);
    else {
      this.#idle.push(...senders);
      this.#keepTimetable(first_us, this.#load.rate);
    }
    await this.#done.promise;
    for (const { socket } of senders) socket.destroy();
    const refused = Object.values(this.#refusals).reduce((sum, count) => sum + count, 0);
    return {
      sent: this.#sent,
      accepted: this.#accepted,
      refused,
      refusals: this.#refusals,
      first_us,
      answer_ms: this.#answer_ms.distribution(),
      late_ms_max: this.#late_ms_max,
      messages: this.#messages,
    };
  }

  #start(sender: Sender): void {
    this.#sent += this.#load.together ?? 1;
    this.#in_flight++;
    sender.send();
  }

  /**
   * Messages leave at even intervals, each up to half an interval earlier or later. So the timers of the service do not
   * run in step with the messages.
   */
  #keepTimetable(first_us: number, rate: number): void {
    const space_us = 1e6 / rate;
    let number = 0;
    let due_us = first_us;
    const tick = (): void => {
      const now_us = nowUs();
      while (due_us <= now_us && due_us < this.#end_us) {
        const sender = this.#idleSender();
        this.#late_ms_max = Math.max(this.#late_ms_max, (now_us - due_us) / 1000);
        this.#start(sender);
        number++;
        due_us = first_us + (number + Math.random() - 0.5) * space_us;
      }
      if (due_us < this.#end_us) setTimeout(tick, Math.max(0, (due_us - nowUs()) / 1000));
      else {
        this.#end_us = 0;
        this.#endIfDone();
      }
    };
    tick();
  }

  #connect(): Sender {
    const { ports } = this.#load;
    const sender = new Sender(this.#load, ports[this.#senders.length % ports.length]!, this);
    this.#senders.push(sender);
    return sender;
  }

  /**
   * A sender that waits for no response, or a new one. Senders whose connection the service has closed are left out.
   */
  #idleSender(): Sender {
    for (;;) {
      const sender = this.#idle.pop();
      if (sender === undefined) break;
      if (!sender.socket.destroyed) return sender;
    }
    return this.#connect();
  }

  /** Sends no more messages, even when `seconds` are not over. */
  stop(): void {
    if (this.#end_us > 0) this.#end_us = nowUs();
  }

  /** @param stored how many messages of the request the service stored, when the response is a success */
  answered(sender: Sender, status: string, stored: number, message: SentMessage): void {
    this.#in_flight--;
    const { together = 1 } = this.#load;
    if (ACCEPTED.has(status)) {
      this.#accepted += stored;
      if (stored < together) this.#refusals['in a list'] = (this.#refusals['in a list'] ?? 0) + together - stored;
      this.#answer_ms.add((nowUs() - message[1]) / 1000);
      if (this.#load.listed === true) this.#messages.push(message);
      this.#goOn(sender);
    } else {
      this.#refusals[status] = (this.#refusals[status] ?? 0) + 1;
      setTimeout(() => this.#goOn(sender), RETRY_AFTER_MS);
    }
    this.#endIfDone();
  }

  #goOn(sender: Sender): void {
    if (this.#load.rate !== undefined) this.#idle.push(sender);
    else if (nowUs() < this.#end_us) this.#start(sender);
    else {
      this.#end_us = 0;
      this.#endIfDone();
    }
  }

  #endIfDone(): void {
    if (this.#in_flight === 0 && this.#end_us === 0) this.#done.resolve();
  }

  /** The service closed the connection of a sender. */
  lost(sender: Sender): void {
    if (!sender.busy) return;
    this.#refusals['closed'] = (this.#refusals['closed'] ?? 0) + 1;
    this.#in_flight--;
    if (nowUs() >= this.#end_us) this.#end_us = 0;
    this.#endIfDone();
  }
}

export type Senders = typeof commands;

let running: Run | null = null;

const commands = serveCommands({
  send(load: Load): Promise<Sent> {
    running = new Run(load);
    return running.play();
  },
  /** Ends the running load before its `seconds` are over. */
  stop(): void {
    running?.stop();
  },
});
