import type { JSX } from 'preact';
import type { Diagnosis, DiagnosisStage } from '@convoke/sdk';
import { Mark } from '../parts/mark.tsx';
import { durationInWords } from '../format.ts';
import { Foreign } from '../parts/foreign.tsx';

const STAGES: Record<DiagnosisStage['stage'], string> = {
  dns: 'Name',
  connect: 'Connect',
  tls: 'TLS',
  request: 'Request',
  response: 'Response',
};

/** The stages that a webhook test reached, as steps on a line. */
export function DiagnosisView({ diagnosis }: { diagnosis: Diagnosis }): JSX.Element {
  const { success, stages, advice, response_excerpt, duration_ms } = diagnosis;
  const longest_ms = Math.max(1, ...stages.map((stage) => stage.duration_ms));
  return (
    <div class="diagnosis" role="group" aria-label="Result of the test">
      <ol class="stages">
        {stages.map((stage) => (
          <li key={stage.stage} class={stage.ok ? 'stage is-good' : 'stage is-bad'}>
            <span class="stage-head">
              <Mark kind={stage.ok ? 'good' : 'bad'} />
              <span class="stage-name">{STAGES[stage.stage]}</span>
              <span class="unseen">{stage.ok ? 'worked' : 'failed'}</span>
            </span>
            <span class="stage-time">
              <meter class="bar" min={0} max={longest_ms} value={stage.duration_ms} aria-hidden="true" />
              {durationInWords(stage.duration_ms)}
            </span>
            <Foreign class="stage-detail">{stage.detail}</Foreign>
          </li>
        ))}
      </ol>
      <p class="advice">
        <Mark kind={success ? 'good' : 'bad'} />
        <span>
          <Foreign>{advice}</Foreign> <span class="faint">{durationInWords(duration_ms)} in all.</span>
        </span>
      </p>
      {response_excerpt !== '' && <Excerpt text={response_excerpt} />}
    </div>
  );
}

/** The beginning of a response. */
export function Excerpt({ text }: { text: string }): JSX.Element {
  return (
    <pre class="excerpt" tabIndex={0} aria-label="The receiver's response">
      {text}
    </pre>
  );
}
