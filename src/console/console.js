"use strict";
// The chat page: shows the chat, sends messages, follows the answers. State lives in the gateway; this only mirrors it.
const chat = document.getElementById("chat");
const state = document.getElementById("state");
const form = document.getElementById("form");
const text = document.getElementById("text");
const partials = new Map(); // message id -> line that shows its answer so far
const shown = new Set(); // ids of replies on the page

function line(role, content) {
  const element = document.createElement("div");
  element.className = "line " + role;
  element.textContent = content;
  chat.append(element);
  chat.scrollTop = chat.scrollHeight;
  return element;
}

function showReply(message) {
  if (message.id && shown.has(message.id)) return;
  if (message.id) shown.add(message.id);
  const partial = partials.get(message.reply_to);
  partials.delete(message.reply_to);
  if (partial) partial.remove();
  line("assistant", message.text);
}

function onEvent(event) {
  switch (event.type) {
    case "partial": {
      let element = partials.get(event.reply_to);
      if (!element) partials.set(event.reply_to, (element = line("assistant partial", "")));
      element.textContent = event.text;
      chat.scrollTop = chat.scrollHeight;
      break;
    }
    case "message": showReply(event); break;
    case "settled": {
      const partial = partials.get(event.message_id);
      if (partial && event.replies === 0) { partial.remove(); partials.delete(event.message_id); }
      state.textContent = "ready";
      break;
    }
    case "typing": state.textContent = "answering"; break;
    case "reload": load(); break;
    case "ready": state.textContent = "ready"; load(); break;
  }
}

async function load() {
  const response = await fetch("/api/history");
  if (!response.ok) return;
  const { messages } = await response.json();
  const pending = [...chat.querySelectorAll(".line.user[data-pending]")];
  const answered = new Set(messages.map((message) => message.reply_to));
  chat.replaceChildren();
  shown.clear();
  partials.clear();
  for (const message of messages) {
    if (message.id) shown.add(message.id);
    line(message.role, message.text);
  }
  for (const element of pending) if (!answered.has(element.dataset.pending)) chat.append(element);
}

function follow() {
  const events = new EventSource("/api/events");
  events.onmessage = (message) => onEvent(JSON.parse(message.data));
  events.onerror = () => { state.textContent = "connection lost, trying again"; };
}

// The id is made once per message, so that sending again after a broken connection cannot say it twice.
async function send(content) {
  const id = crypto.randomUUID ? crypto.randomUUID() : String(Date.now()) + Math.random().toString(16).slice(2);
  const element = line("user", content);
  element.dataset.pending = id;
  for (let attempt = 0; attempt < 5; attempt++) {
    try {
      const response = await fetch("/api/messages", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ id, text: content }),
      });
      if (response.ok) return;
      if (response.status < 500) {
        element.classList.add("failed");
        element.title = (await response.json()).error;
        return;
      }
    } catch { /* the gateway is away: try again */ }
    await new Promise((resolve) => setTimeout(resolve, 1000 * 2 ** attempt));
  }
  element.classList.add("failed");
  element.title = "The gateway could not be reached.";
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const content = text.value;
  if (!content.trim()) return;
  text.value = "";
  send(content);
});
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    form.requestSubmit();
  }
});
follow();
