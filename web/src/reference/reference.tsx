import type { JSX } from 'preact';
import { Snippet } from '../parts/copy.tsx';
import {
  type ApiDocument,
  curlOf,
  type Group,
  groupsOf,
  nameOf,
  type Operation,
  type Response,
  type Schema,
  scopesOf,
  typeOf,
} from './document.ts';
import { More } from './more.tsx';
import { Fields, resolved } from './schema.tsx';

interface ReferenceProps {
  document: ApiDocument;
  /** Whether the service requires keys. */
  needs_key: boolean;
}

/** The whole API on one page. A browser can search it, and people can link to it and copy from it. */
export function Reference({ document, needs_key }: ReferenceProps): JSX.Element {
  const groups = groupsOf(document);
  return (
    <div class="reference">
      <a class="skip" href="#operations">
        Skip to the operations
      </a>
      <Contents groups={groups} />
      <main id="operations" tabIndex={-1}>
        <header>
          <h1>The API of {document.info.title}</h1>
          <p>{document.info.description}</p>
          <p class="soft">
            Version {document.info.version}. For programs: <a href="/openapi.json">openapi.json</a>, OpenAPI 3.1.
          </p>
          {needs_key && (
            <>
              <p>This service needs a key: the commands take it from the terminal.</p>
              <Snippet what="the command that sets the key" text="export CONVOKE_API_KEY=cvk_…" />
            </>
          )}
        </header>
        {groups.map((group) => (
          <section key={group.name} aria-labelledby={`group-${group.name}`}>
            <h2 id={`group-${group.name}`}>{group.name}</h2>
            <p class="soft">{group.description}</p>
            {group.operations.map((operation) => (
              <OperationPart
                key={operation.operationId}
                operation={operation}
                document={document}
                needs_key={needs_key}
              />
            ))}
          </section>
        ))}
      </main>
    </div>
  );
}

function Contents({ groups }: { groups: Group[] }): JSX.Element {
  return (
    <nav class="reference-contents" aria-label="Operations">
      <a class="brand" href="/">
        Convoke
      </a>
      {groups.map(({ name, operations }) => (
        <div key={name}>
          <h2>{name}</h2>
          <ul>
            {operations.map(({ operationId, summary }) => (
              <li key={operationId}>
                <a href={`#${operationId}`}>{summary}</a>
              </li>
            ))}
          </ul>
        </div>
      ))}
    </nav>
  );
}

function OperationPart(props: ReferenceProps & { operation: Operation }): JSX.Element {
  const { operation, document, needs_key } = props;
  const { operationId, method, path, summary, description, body } = operation;
  const { schemas } = document.components;
  const curl = curlOf(operation, location.origin, needs_key);
  return (
    <article id={operationId} aria-labelledby={`title-${operationId}`}>
      <h3 id={`title-${operationId}`}>
        <a href={`#${operationId}`}>{summary}</a>
      </h3>
      <p class="call">
        <b>{method}</b> <code>{path ?? 'the webhook_url of the instance'}</code>
      </p>
      {description !== undefined && <p>{description}</p>}
      {path !== null && <Scopes operation={operation} />}
      {curl !== null && <Snippet text={curl} what={`the command for ${operationId}`} />}
      <Parameters operation={operation} />
      {body !== null && (
        <>
          <h4>
            Body: {typeOf(body.schema)}
            {body.is_required ? '' : ', may be left out'}
          </h4>
          <Fields schema={body.schema} schemas={schemas} />
        </>
      )}
      <Responses operation={operation} document={document} />
    </article>
  );
}

function Scopes({ operation }: { operation: Operation }): JSX.Element {
  const scopes = scopesOf(operation);
  return (
    <p class="soft">
      {scopes.length === 0
        ? 'Needs no key.'
        : `Needs a key with the scope ${scopes.join(' or ')}, once there is a key.`}
    </p>
  );
}

function Parameters({ operation: { parameters = [] } }: { operation: Operation }): JSX.Element | null {
  if (parameters.length === 0) return null;
  return (
    <>
      <h4>Parameters</h4>
      <ul class="fields">
        {parameters.map(({ name, in: place, required, description, schema = {} }) => (
          <li key={`${place} ${name}`}>
            <code class="field-name">{name}</code>{' '}
            <span class="field-type">
              {typeOf(schema)}, in the {place}
            </span>
            {required && <span class="field-required">required</span>}
            {description !== undefined && <p>{description}</p>}
          </li>
        ))}
      </ul>
    </>
  );
}

function Responses({ operation, document }: { operation: Operation; document: ApiDocument }): JSX.Element {
  const { schemas } = document.components;
  const entries = Object.entries(operation.responses);
  const refusals = entries.filter(([status]) => Number(status) >= 400);
  return (
    <>
      <h4>Responses</h4>
      <ul class="fields">
        {entries
          .filter((entry) => !refusals.includes(entry))
          .map(([status, response]) => (
            <ResponsePart key={status} {...{ status, response, schemas }} />
          ))}
      </ul>
      {refusals.length > 0 && (
        <More title={`When it is refused: ${refusals.map(([status]) => status).join(', ')}`}>
          {() => (
            <ul class="fields">
              {refusals.map(([status, response]) => (
                <ResponsePart key={status} {...{ status, response, schemas }} />
              ))}
            </ul>
          )}
        </More>
      )}
    </>
  );
}

function ResponsePart(props: { status: string; response: Response; schemas: Record<string, Schema> }): JSX.Element {
  const { status, response, schemas } = props;
  const { description, headers = {}, content = {} } = response;
  const schema = Object.values(content)[0]?.schema;
  const has_fields = schema !== undefined && resolved(schema, schemas).properties !== undefined;
  return (
    <li>
      <code class="field-name">{status}</code>{' '}
      <span class="field-type">{schema === undefined ? 'no body' : typeOf(schema)}</span>
      <p>{description}</p>
      {Object.entries(headers).map(([name, header]) => (
        <p key={name} class="soft">
          <code>{name}</code>: {header.description}
        </p>
      ))}
      {has_fields && (
        <More title={nameOf(schema) ?? 'its fields'}>{() => <Fields schema={schema} schemas={schemas} />}</More>
      )}
    </li>
  );
}
