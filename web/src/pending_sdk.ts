import { ConvokeClient, type Page } from '@convoke/sdk';

export interface NodeInfo {
  node_id: string;
  version: string;
  address: string;
  started_at: string;
  seen_at: string;
  stopping: boolean;
  partition_count: number;
}

export class PendingClient extends ConvokeClient {
  async metrics(): Promise<string> {
    return (await fetch('/metrics')).text();
  }
  async getDemo(): Promise<{ running: boolean; meeting_id: string | null }> {
    return { running: false, meeting_id: null };
  }
  async startDemo(): Promise<void> {}
  async stopDemo(): Promise<void> {}
  async listNodes(): Promise<Page<NodeInfo>> {
    return { data: [], next_cursor: null };
  }
}
