// A graph with one node that asks a model, for `langgraphjs dev`. MODEL_URL is where the model listens.
import { END, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph';
import { ChatOpenAI } from '@langchain/openai';

const baseURL = process.env.MODEL_URL;
const model = new ChatOpenAI({ model: 'scripted', apiKey: 'none', maxRetries: 0, configuration: { baseURL } });

export const graph = new StateGraph(MessagesAnnotation)
  .addNode('model', async ({ messages }) => ({ messages: [await model.invoke(messages)] }))
  .addEdge(START, 'model')
  .addEdge('model', END)
  .compile();
