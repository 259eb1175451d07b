"""A graph with one node that asks a model, for `langgraph dev`. MODEL_URL is where the model listens."""

import os

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

model = ChatOpenAI(model="scripted", api_key="none", base_url=os.environ["MODEL_URL"], max_retries=0)


async def ask(state: MessagesState) -> dict:
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node("model", ask).add_edge(START, "model").add_edge("model", END).compile()
