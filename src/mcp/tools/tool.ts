import type { CallToolResult, Tool as ListedTool, ToolAnnotations } from '@modelcontextprotocol/server';
import type { Static, TObject } from 'typebox';
import type { Scope } from '../../domain/api_key.ts';
import type { Problem } from '../../domain/problem.ts';
import { validatorCompiler } from '../../http/intake/validate.ts';
import type { Caller } from '../caller.ts';
import { plainSchema } from '../plain_schema.ts';
import type { OwnWords } from '../refusal.ts';

interface ToolShape<Input extends TObject, Output extends TObject> {
  name: string;
  title: string;
  description: string;
  /** The tool is offered to keys with one of these scopes. */
  scopes: readonly Scope[];
  /** What the tool may change, for clients that ask a person before they call it. */
  annotations: Required<Omit<ToolAnnotations, 'title'>>;
  /** The arguments that have another name in the API, by that name. */
  names?: NonNullable<OwnWords['names']>;
  input: Input;
  output: Output;
  run(caller: Caller, input: Static<Input>): Promise<Static<Output>>;
}

/** An action of a model: one or a few requests to the API. */
export interface Tool {
  readonly listed: ListedTool;
  readonly scopes: readonly Scope[];
  /** For the refusals of the service. */
  readonly words: OwnWords;
  /** @throws Problem `invalid_fields`, and ConvokeError when the service refuses the call */
  call(caller: Caller, given: unknown): Promise<CallToolResult>;
}

/** Makes a tool from its description. The tool validates its input against the schema before it runs. */
export function toolOf<Input extends TObject, Output extends TObject>(shape: ToolShape<Input, Output>): Tool {
  const { name, title, description, annotations, input, output, scopes, names = {} } = shape;
  const validate = validatorCompiler({ schema: input, httpPart: 'body', method: '', url: '' });
  return {
    scopes,
    words: { names },
    listed: {
      name,
      title,
      description,
      annotations: { title, ...annotations },
      inputSchema: plainSchema(input),
      outputSchema: plainSchema(output),
    },
    async call(caller, given) {
      const judged = validate(given) as { error?: Problem; value?: Static<Input> };
      if (judged.error !== undefined) throw judged.error;
      const result = await shape.run(caller, judged.value as Static<Input>);
      // Clients without structured results show the text.
      return { content: [{ type: 'text', text: JSON.stringify(result) }], structuredContent: result };
    },
  };
}
