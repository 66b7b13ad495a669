"use strict";
// The chat page: shows the chat, sends messages, follows the answers. State lives in the gateway; this only mirrors it.
const chat = document.getElementById("chat");
const state = document.getElementById("state");
const form = document.getElementById("form");
const text = document.getElementById("text");
const partials = new Map(); // message id -> line that shows its answer so far
const replies = new Map(); // id of a reply -> its line
const said = new Map(); // message id -> its line, while an answer may come or the history does not have it (commands)

let waiting = null; // events that came while the chat is being loaded

// Changes the chat; who reads further up is not moved away from there.
function change(how) {
  const atEnd = chat.scrollHeight - chat.scrollTop - chat.clientHeight < 40;
  const top = chat.scrollTop;
  how();
  chat.scrollTop = atEnd ? chat.scrollHeight : top;
}

function line(role, content) {
  const element = document.createElement("div");
  element.className = "line " + role;
  element.textContent = content;
  change(() => chat.append(element));
  return element;
}

function showReply(message) {
  if (message.id && replies.has(message.id)) return;
  const partial = partials.get(message.reply_to);
  partials.delete(message.reply_to);
  if (partial) partial.remove();
  reply(message);
}

function reply(message) {
  const element = line("assistant", "");
  if (message.id) replies.set(message.id, element);
  change(() => fill(element, message));
}

// A reply's line shows its text, and below it what can be pressed.
function fill(element, message) {
  element.textContent = message.text;
  delete element.dataset.toast;
  for (const row of message.buttons || []) {
    const buttons = document.createElement("div");
    buttons.className = "buttons";
    for (const { label, data } of row) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.addEventListener("click", () => press(element, message.id, data));
      buttons.append(button);
    }
    element.append(buttons);
  }
}

async function press(element, message_id, data) {
  const buttons = element.querySelectorAll("button");
  buttons.forEach((button) => (button.disabled = true));
  let toast = "The gateway could not be reached; press again.";
  try {
    const response = await post("/api/press", { id: newId(), message_id, data });
    const answer = await response.json();
    toast = response.ok ? answer.toast : answer.error;
  } catch { /* the gateway is away */ }
  buttons.forEach((button) => (button.disabled = false));
  // Where the press changed the message, its new text tells.
  if (toast && [...buttons].some((button) => element.contains(button))) element.dataset.toast = toast;
}

const newId = () => crypto.randomUUID ? crypto.randomUUID() : String(Date.now()) + Math.random().toString(16).slice(2);

const post = (path, body) => fetch(path, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
});

function onEvent(event) {
  switch (event.type) {
    case "partial": {
      let element = partials.get(event.reply_to);
      if (!element) partials.set(event.reply_to, (element = line("assistant partial", "")));
      change(() => (element.textContent = event.text));
      break;
    }
    case "message": showReply(event); break;
    case "edited": {
      const element = replies.get(event.id);
      if (element) change(() => fill(element, event));
      break;
    }
    case "settled": {
      const partial = partials.get(event.message_id);
      if (partial && event.replies === 0) { partial.remove(); partials.delete(event.message_id); }
      if (event.replies === 0) said.delete(event.message_id);
      state.textContent = "ready";
      break;
    }
    case "typing": state.textContent = "answering"; break;
    case "reload": load(); break;
    case "ready": state.textContent = "ready"; load(); break;
  }
}

// Shows the chat as it is stored. What happens meanwhile comes after it, so that it cannot be wiped out.
async function load() {
  if (waiting) return;
  waiting = [];
  try {
    const response = await fetch("/api/history");
    if (response.ok) show((await response.json()).messages);
  } catch { /* the gateway is away: the next "ready" loads again */ }
  const missed = waiting;
  waiting = null;
  missed.forEach(onEvent);
}

function show(messages) {
  change(() => {
    chat.replaceChildren();
    replies.clear();
    partials.clear();
    const answered = new Set();
    for (const message of messages) {
      const own = said.get(message.reply_to);
      if (own && !answered.has(own)) {
        answered.add(own);
        const before = chat.lastElementChild;
        const known = before && before.classList.contains("user") && before.textContent === own.textContent;
        if (!known) chat.append(own);
      }
      if (message.role === "assistant") reply(message);
      else line(message.role, message.text);
    }
    for (const own of said.values()) if (!answered.has(own)) chat.append(own);
  });
}

function follow() {
  const events = new EventSource("/api/events");
  events.onmessage = (message) => {
    const event = JSON.parse(message.data);
    if (waiting) waiting.push(event);
    else onEvent(event);
  };
  events.onerror = () => { state.textContent = "connection lost, trying again"; };
}

// The id is made once per message, so that sending again after a broken connection cannot say it twice.
async function send(content) {
  const id = newId();
  const element = line("user", content);
  chat.scrollTop = chat.scrollHeight;
  said.set(id, element);
  for (let attempt = 0; attempt < 5; attempt++) {
    try {
      const response = await post("/api/messages", { id, text: content });
      const answer = await response.json();
      if (response.ok) return;
      if (response.status < 500) return fail(element, answer.error);
    } catch { /* the gateway is away: try again */ }
    await new Promise((resolve) => setTimeout(resolve, 1000 * 2 ** attempt));
  }
  fail(element, "The gateway could not be reached.");
}

function fail(element, why) {
  element.classList.add("failed");
  element.dataset.why = why;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const content = text.value;
  if (!content.trim()) return;
  text.value = "";
  grow();
  send(content);
});
const grow = () => { text.rows = Math.min(8, text.value.split("\n").length); };
text.addEventListener("input", grow);
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    form.requestSubmit();
  }
});
follow();
