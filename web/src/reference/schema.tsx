import type { JSX } from 'preact';
import { More } from './more.tsx';
import { nameOf, type Schema, typeOf } from './document.ts';

type Schemas = Record<string, Schema>;

/** The fields of an object, each with its type; nested fields open in place. */
export function Fields({ schema, schemas }: { schema: Schema; schemas: Schemas }): JSX.Element {
  const { properties = {}, required = [], description } = resolved(schema, schemas);
  const names = Object.keys(properties);
  if (names.length === 0) return <p class="soft">{description ?? typeOf(schema)}</p>;
  return (
    <ul class="fields">
      {names.map((name) => {
        const field = properties[name] as Schema;
        return <Field key={name} {...{ name, field, schemas }} is_required={required.includes(name)} />;
      })}
    </ul>
  );
}

function Field(props: { name: string; field: Schema; is_required: boolean; schemas: Schemas }): JSX.Element {
  const { name, field, is_required, schemas } = props;
  const inner = objectIn(field, schemas);
  const description = field.description ?? resolved(field, schemas).description;
  return (
    <li>
      <code class="field-name">{name}</code> <span class="field-type">{typeOf(field)}</span>
      {is_required && <span class="field-required">required</span>}
      {description !== undefined && <p>{description}</p>}
      {field['x-expected'] !== undefined && <p class="soft">It {field['x-expected']}.</p>}
      {inner !== null && (
        <More title={nameOf(inner) ?? 'its fields'}>{() => <Fields schema={inner} schemas={schemas} />}</More>
      )}
    </li>
  );
}

export function resolved(schema: Schema, schemas: Schemas): Schema {
  const name = nameOf(schema);
  return name === null ? schema : { ...schemas[name], ...schema };
}

/**
 * The object of a value: the value itself, the item of its list, or one of its alternatives. Null when there is no
 * object with fields.
 */
function objectIn(schema: Schema, schemas: Schemas): Schema | null {
  const { properties, items, anyOf } = resolved(schema, schemas);
  if (properties !== undefined) return schema;
  if (items !== undefined) return objectIn(items, schemas);
  for (const choice of anyOf ?? []) {
    const found = objectIn(choice, schemas);
    if (found !== null) return found;
  }
  return null;
}
