import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import type { Diagnosis, Instance, RotatedSecret } from '@convoke/sdk';
import { useQuery } from '../queries.ts';
import { AgentTags } from '../parts/agents.tsx';
import { Answer } from '../parts/answer.tsx';
import { ConnectionState, connectionFacts, doesPull } from '../parts/connection.tsx';
import { Id } from '../parts/copy.tsx';
import { Dialog, Form } from '../parts/dialog.tsx';
import { HealthState, Mark } from '../parts/mark.tsx';
import { mayChange } from '../parts/may.tsx';
import { doing, showProblem } from '../parts/notice.tsx';
import { Detail, Facts } from '../parts/page.tsx';
import { OVERLAP_DEFAULT, OverlapField, refusedInWords } from '../parts/rotation.tsx';
import { Reading, Skeleton } from '../parts/states.tsx';
import { Ago, At } from '../parts/time.tsx';
import { is_portal } from '../portal.ts';
import { addressOf, go, useAsked } from '../router.ts';
import { client, inThisSession, may } from '../service.ts';
import { counted, failureInWords } from '../format.ts';
import { AdviceAction } from './advice_action.tsx';
import { DeliveryList } from './delivery_list.tsx';
import { DiagnosisView } from './diagnosis.tsx';
import { DropDialog } from './drop.tsx';
import { EditDialog } from './edit_instance.tsx';
import { LastDay } from './last_day.tsx';
import { MeetingsOf } from './memberships.tsx';
import { isPaused, PauseButton, PausedNote } from './pause.tsx';
import { RecoverDialog } from './recover.tsx';
import { Foreign } from '../parts/foreign.tsx';
import { SecretDialog, showOnce } from '../parts/secret.tsx';

type Asking = 'edit' | 'rotate' | 'recover' | 'drop' | 'delete' | null;

export function InstanceDetail({ instance_id, back }: { instance_id: string; back: string }): JSX.Element {
  // Events still arrive while the instance is being deleted: its data must not be requested any more.
  const removing = useRef<Instance | null>(null);
  const query = useQuery(
    `instance ${instance_id}`,
    () => (removing.current === null ? client.getInstance(instance_id) : Promise.resolve(removing.current)),
    (event) => event.instance_id === instance_id || event.name === 'message.accepted',
  );
  const { value, again } = query;
  return (
    <Detail
      title={<Foreign>{value?.instance_name || instance_id}</Foreign>}
      label={`Instance ${instance_id}`}
      back={back}
      back_label="Close the instance"
    >
      <Reading query={query} />
      {value !== null && <InstanceBody instance={value} again={again} back={back} removing={removing} />}
    </Detail>
  );
}

interface InstanceBodyProps {
  instance: Instance;
  again: () => void;
  back: string;
  /** The instance as it was when its deletion began. */
  removing: { current: Instance | null };
}

function InstanceBody({ instance, again, back, removing }: InstanceBodyProps): JSX.Element {
  const { instance_id, instance_name } = instance;
  const pulls = doesPull(instance);
  const may_change = mayChange(instance);
  const [diagnosis, setDiagnosis] = useState<Diagnosis | 'running' | null>(null);
  const [asking, setAsking] = useState<Asking>(null);
  const close = (): void => setAsking(null);
  useAsked('rotate', () => may_change && !is_portal && setAsking('rotate'));

  const test = async (): Promise<void> => {
    if (diagnosis === 'running') return;
    setDiagnosis('running');
    try {
      setDiagnosis(await inThisSession(client.testWebhook(instance_id)));
    } catch (error) {
      setDiagnosis(null);
      showProblem(error);
    }
    again();
  };
  const edit = (): void => setAsking('edit');

  return (
    <>
      <div class="detail-block">
        <div class="status-line">
          <ConnectionState instance={instance} />
          {!(pulls && instance.health === 'unknown') && (
            <HealthState health={instance.health} is_paused={isPaused(instance)} />
          )}
          <span class="faint">
            {instance.consecutive_failures > 0 && `${counted(instance.consecutive_failures, 'failure')} in a row`}
          </span>
        </div>
        <PausedNote instance={instance} />
        {diagnosis === null && <LastFailureView instance={instance} again={again} onEdit={edit} />}
        {instance.connected === null && (
          <p class="advice">
            <Mark kind="waiting" />
            <span>
              Its machine is not connected. Pending deliveries wait, and go out in order when it connects.
              <span class="advice-what">
                Start the program on it that pulls, such as <code>npx convoke connect</code>.
              </span>
            </span>
          </p>
        )}
        {may_change && (
          <div class="button-row">
            {!pulls && (
              <button
                type="button"
                class="button primary"
                onClick={() => void test()}
                aria-disabled={diagnosis === 'running'}
              >
                Test the webhook
              </button>
            )}
            {instance.pending_deliveries > 0 && (
              <button
                type="button"
                class="button"
                title="Ends the back-off, so that pending deliveries are sent at once"
                onClick={() =>
                  void doing(client.heartbeat(instance_id), () => 'Pending deliveries are being sent.').then(again)
                }
              >
                Retry pending now
              </button>
            )}
            <button type="button" class="button" onClick={() => setAsking('recover')}>
              Resend failed…
            </button>
            <PauseButton instance={instance} again={again} />
          </div>
        )}
        <div role="status">
          {diagnosis === 'running' && <Skeleton lines={3} />}
          {diagnosis !== null && diagnosis !== 'running' && (
            <>
              <DiagnosisView diagnosis={diagnosis} />
              <div class="button-row">
                <AdviceAction instance={instance} result={diagnosis} again={again} onEdit={edit} />
              </div>
            </>
          )}
        </div>
      </div>

      <div class="detail-block">
        <Facts
          facts={[
            ['Instance id', <Id id={instance_id} what="the instance id" />],
            ...connectionFacts(instance),
            ...(instance.webhook_url === ''
              ? []
              : [
                  [
                    pulls ? 'Webhook, not used' : 'Webhook',
                    <Id id={instance.webhook_url} what="the webhook URL" />,
                  ] as const,
                ]),
            ['Agents', <AgentTags agent_ids={instance.agent_ids} />],
            ['Replies', instance.replies === true ? 'its answers are sent in the meeting' : 'none'],
            ['Success', instance.success_statuses === '2xx' ? 'every 2xx' : '200 only'],
            [
              'Headers sent',
              instance.webhook_header_names.length === 0 ? 'none of its own' : instance.webhook_header_names.join(', '),
            ],
            ['Pending', instance.pending_deliveries.toLocaleString('en')],
            ...leaseOf(instance),
            ...healthTimes(instance),
            ['Last success', <Ago at={instance.last_success_at} />],
            ['Last seen', <Ago at={instance.last_seen_at} />],
            ['Registered', <Ago at={instance.created_at} />],
            ...(instance.owner_key_id === null
              ? []
              : [['Owned by key', <Id id={instance.owner_key_id} what="the key id" />] as const]),
          ]}
        />
      </div>

      <div class="detail-block">
        <h3>Last day</h3>
        <LastDay instance_id={instance_id} />
      </div>

      {may('read') && (
        <div class="detail-block">
          <h3>Meetings</h3>
          <MeetingsOf instance={instance} />
        </div>
      )}

      <div class="detail-block">
        <h3>
          Latest deliveries <a href={addressOf(['deliveries'], { instance_id })}>all</a>
        </h3>
        <DeliveryList query={{ instance_id }} most={8} without="instance" />
      </div>

      {may_change && (
        <div class="detail-block">
          <h3>Manage</h3>
          <div class="button-row">
            <button type="button" class="button" onClick={edit}>
              Edit…
            </button>
            {!is_portal && (
              <>
                <button type="button" class="button" onClick={() => setAsking('rotate')}>
                  Rotate the secret…
                </button>
                <button type="button" class="button" onClick={() => setAsking('drop')}>
                  Drop pending…
                </button>
                <button type="button" class="button dangerous" onClick={() => setAsking('delete')}>
                  Delete…
                </button>
              </>
            )}
          </div>
        </div>
      )}

      {asking === 'rotate' && <RotateDialog instance_id={instance_id} onClose={close} />}
      {asking === 'recover' && <RecoverDialog instance={instance} onClose={close} />}
      {asking === 'edit' && (
        <EditDialog
          instance={instance}
          again={again}
          onClose={() => {
            close();
            again();
          }}
        />
      )}
      {asking === 'drop' && (
        <DropDialog
          of={{ instance_id }}
          onClose={() => {
            close();
            again();
          }}
        />
      )}
      {asking === 'delete' && (
        <Dialog title={`Delete ${instance_name || instance_id}?`} onClose={close}>
          <Form
            action="Delete"
            is_dangerous
            onSubmit={async () => {
              removing.current = instance;
              const removed = client.deleteInstance(instance_id).catch((error: unknown) => {
                removing.current = null;
                throw error;
              });
              await inThisSession(removed);
              close();
              go(back);
            }}
          >
            <p>
              It leaves all its meetings, and gets nothing any more.{' '}
              {instance.pending_deliveries > 0 &&
                `${counted(instance.pending_deliveries, 'pending delivery', 'pending deliveries')} will be cancelled. `}
              This cannot be undone; a pause can.
            </p>
          </Form>
        </Dialog>
      )}
    </>
  );
}

/** When a subscription of MCP Events ends, and who keeps it. Absent for every other instance. */
function leaseOf({ lease_until }: Instance): (readonly [string, JSX.Element])[] {
  if (lease_until === undefined) return [];
  return [
    [
      'Subscription',
      <>
        ends <Ago at={lease_until} />, unless the program that made it renews it
      </>,
    ],
  ];
}

/**
 * Since when the instance has its health, and when the next attempt after its back-off is. Leaves out unknown times.
 */
function healthTimes(instance: Instance): (readonly [string, JSX.Element])[] {
  const { health, health_since, next_try_at, pending_deliveries } = instance;
  // A paused instance gets no pushes, so nothing shows its health.
  if (isPaused(instance)) return [];
  return [
    ...(health_since === undefined ? [] : [[`${capital(health)} since`, <At at={health_since} />] as const]),
    ...(next_try_at === undefined
      ? []
      : [
          [
            'Next try',
            Date.parse(next_try_at) > Date.now() ? (
              <Ago at={next_try_at} />
            ) : (
              <>{pending_deliveries > 0 ? 'now' : 'when something waits'}</>
            ),
          ] as const,
        ]),
  ];
}

interface LastFailureProps {
  instance: Instance;
  again: () => void;
  onEdit: () => void;
}

function LastFailureView({ instance, again, onEdit }: LastFailureProps): JSX.Element | null {
  const { last_failure, health } = instance;
  if (last_failure === null || health === 'up') return null;
  return (
    <>
      <div class="advice">
        <Mark kind={health === 'down' ? 'bad' : 'warning'} />
        <div>
          <Foreign>{capital(failureInWords(last_failure))}</Foreign>, <Ago at={last_failure.at} />.
          {last_failure.response_excerpt !== undefined && <Answer text={last_failure.response_excerpt} />}
          <Foreign class="advice-what">{last_failure.advice}</Foreign>
        </div>
      </div>
      <div class="button-row">
        <AdviceAction instance={instance} result={last_failure} again={again} onEdit={onEdit} />
      </div>
    </>
  );
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

function RotateDialog({ instance_id, onClose }: { instance_id: string; onClose: () => void }): JSX.Element {
  const [overlap, setOverlap] = useState(OVERLAP_DEFAULT);
  const rotate = async (): Promise<void> => {
    const rotating = refusedInWords('secret', client.rotateSecret(instance_id, { overlap_seconds: Number(overlap) }));
    const drawing =
      ({ webhook_secret, earlier_secrets_expire_at }: RotatedSecret) =>
      (onSaved: () => void): JSX.Element => (
        <SecretDialog title="The new secret" secret={webhook_secret} onClose={onSaved}>
          {overlap === '0'
            ? 'From now on only this secret signs. The receiver refuses pushes until it has it.'
            : earlier_secrets_expire_at === undefined
              ? 'Until the old secret ends, every push carries two signatures, one with each secret.'
              : 'It was rotated before: each earlier secret signs every push too, until its own end.'}
        </SecretDialog>
      );
    await showOnce(rotating, drawing, onClose);
  };
  return (
    <Dialog title="Rotate the secret" onClose={onClose}>
      <Form
        action="Rotate"
        when_lost={`The service does not respond, so the instance may have a new secret that nobody saw. Rotate again${overlap === '0' ? '.' : ': each earlier secret signs until its own end.'}`}
        onSubmit={rotate}
      >
        <OverlapField
          what="secret"
          hint="Time to give the receiver the new one."
          value={overlap}
          onChange={setOverlap}
        />
      </Form>
    </Dialog>
  );
}
