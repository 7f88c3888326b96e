"use strict";
const at = (id) => document.getElementById(id);
const NUMBERS = ["max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty",
                 "presence_penalty", "seed"];
const OF_OPENAI = new Set(["model", "prompt", "messages", "max_tokens", "temperature", "top_p", "frequency_penalty",
                           "presence_penalty", "seed", "stop", "stream"]);
const FORM = ["system", "prompt", "stop_text", ...NUMBERS];
const SHOWN = 20;  // candidates of a token, the most that a completion may ask for

let model = "";
let mode = "completion";
let form = "curl";     // of the request that is shown
let running = null;    // aborts the request
let turns = [];        // of the chat, without the next message
let last = null;       // the body whose output is shown, with its seed

// --- the request that the form describes

function body() {
  const fields = {model};
  if (mode === "chat") {
    const system = at("system").value === "" ? [] : [{role: "system", content: at("system").value}];
    fields.messages = [...system, ...turns, {role: "user", content: at("prompt").value}];
  } else {
    fields.prompt = at("prompt").value;
  }
  for (const name of NUMBERS) if (at(name).value !== "") fields[name] = Number(at(name).value);
  if (at("stop_text").value !== "") fields.stop = at("stop_text").value;
  return {...fields, stream: true};
}

const path = () => mode === "chat" ? "/v1/chat/completions" : "/v1/completions";

// Asks for the candidates as well: under two names, as OpenAI's two interfaces have it.
const withCandidates = (fields) =>
    ({...fields, ...(fields.messages ? {logprobs: true, top_logprobs: SHOWN} : {logprobs: SHOWN})});

function curl() {
  const key = at("keyed").hidden ? "" : " \\\n  -H 'Authorization: Bearer KEY'";
  return "curl -N " + location.origin + path() + key + " \\\n  -H 'Content-Type: application/json' \\\n  -d '" +
      JSON.stringify(body()).replaceAll("'", "'\\''") + "'";
}

function python() {
  const own = {}, extra = {};
  for (const [name, value] of Object.entries(body())) (OF_OPENAI.has(name) ? own : extra)[name] = value;
  const literal = (value) => value === true ? "True" : JSON.stringify(value);
  const lines = Object.entries(own).map(([name, value]) => `    ${name}=${literal(value)},\n`);
  if (Object.keys(extra).length > 0) lines.push(`    extra_body=${JSON.stringify(extra)},\n`);
  const key = at("keyed").hidden ? "none" : "KEY";
  const [create, text] = mode === "chat" ? ["chat.completions", "delta.content or \"\""] : ["completions", "text"];
  return `from openai import OpenAI\n\nclient = OpenAI(base_url="${location.origin}/v1", api_key="${key}")\n` +
      `for chunk in client.${create}.create(\n${lines.join("")}):\n` +
      `    print(chunk.choices[0].${text}, end="", flush=True)\n`;
}

function showRequest() {
  at("request").textContent = form === "curl" ? curl() : python();
  at("base").textContent = location.origin + "/v1";
  const values = new URLSearchParams({mode});
  for (const id of FORM) if (at(id).value !== "") values.set(id, at(id).value);
  at("link").href = "#" + values;
}

// Fills the form by what a link has. It never runs: a link must not spend the reader's tokens.
function readLink() {
  const values = new URLSearchParams(location.hash.slice(1));
  if (!values.has("mode")) return;
  for (const id of FORM) at(id).value = values.get(id) ?? "";
  setMode(values.get("mode") === "chat" ? "chat" : "completion");
}

function setMode(next) {
  mode = next;
  for (const id of ["completion", "chat"]) at(id).setAttribute("aria-pressed", String(id === mode));
  for (const id of ["system", "clear"]) at(id).hidden = mode !== "chat";
  turns = [];
  showOutput("");
  showRequest();
}

function setForm(next) {
  form = next;
  at("as_curl").setAttribute("aria-pressed", String(form === "curl"));
  at("as_python").setAttribute("aria-pressed", String(form === "python"));
  showRequest();
}

// --- the server

function heads(type) {
  const all = type ? {"Content-Type": type} : {};
  if (at("key").value) all.Authorization = "Bearer " + at("key").value;
  return all;
}

async function showState() {
  let is_good = false;
  let status = "the server does not answer";
  try {
    const health = await fetch("/health");
    is_good = health.ok;
    status = is_good ? "ready" : (await health.json()).status;
    const models = await fetch("/v1/models", {headers: heads()});
    if (models.status === 401) at("keyed").hidden = false;
    if (models.ok) model = (await models.json()).data[0].id;
  } catch (error) { /* `status` says it */ }
  at("state").className = is_good ? "good" : "bad";
  at("state").textContent = status;
  at("model").textContent = model;
  showRequest();
}

async function post(to, fields, signal) {
  const response = await fetch(to, {method: "POST", signal, headers: heads("application/json"),
                                    body: JSON.stringify(fields)});
  if (!response.ok) throw new Error((await response.json()).error.message);
  return response;
}

// The data of each event of a stream; an empty line ends an event.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
  }
}

// --- the output

function element(kind, text = "", name = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  made.className = name;
  return made;
}

function showOutput(prompt) {
  at("prompted").textContent = mode === "chat" ? "" : prompt;
  at("text").textContent = "";
  at("note").textContent = "\u00a0";
  at("candidates").hidden = true;
  at("turns").textContent = "";
  for (const turn of turns) at("turns").append(element("div", turn.content, "turn " + turn.role));
  if (mode === "chat" && prompt !== "") at("turns").append(element("div", prompt, "turn user"));
}

// Each token is one to click. Where their texts are not the text, such as with parts of a character or with text that
// was held back, they are one together.
function showTokens(text, names, first) {
  if (names.join("") !== text) return showSpan(text, first, first + names.length);
  names.forEach((name, i) => showSpan(name, first + i, first + i + 1));
}

function showSpan(text, first, end) {
  const span = element("span", text, "token");
  span.tabIndex = 0;
  const open = () => showCandidates(span, first, end).catch((error) => { at("note").textContent = error.message; });
  span.addEventListener("click", open);
  span.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
  at("text").append(span);
}

async function run() {
  running = new AbortController();
  at("go").disabled = true;
  at("stop").disabled = false;
  const fields = body();
  const message = at("prompt").value;
  showOutput(message);
  last = {path: path(), fields};
  const began = performance.now();
  let is_whole = false, answer = "", shown = 0, names = [];
  try {
    const asked = {...withCandidates(fields), stream_options: {include_usage: true}};
    for await (const data of events(await post(path(), asked, running.signal))) {
      if (data === "[DONE]") { is_whole = true; break; }
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      if (event.seed !== undefined) last.fields = {...fields, seed: event.seed};
      for (const choice of event.choices) {
        names.push(...tokens(choice).map((one) => one.token));
        const text = choice.text ?? choice.delta.content ?? "";
        if (text === "") continue;
        showTokens(text, names, shown);
        answer += text;
        shown += names.length;
        names = [];
      }
      if (event.usage) showUsage(event, (performance.now() - began) / 1000);
    }
    if (!is_whole) throw new Error("the stream broke off");
    if (mode === "chat") {
      turns.push({role: "user", content: message}, {role: "assistant", content: answer});
      at("prompt").value = "";
    }
  } catch (error) {
    at("note").textContent = error.name === "AbortError" ? "stopped" : error.message;
  }
  running = null;
  at("go").disabled = false;
  at("stop").disabled = true;
  showState();
}

function showUsage(event, seconds) {
  const count = event.usage.completion_tokens;
  at("note").textContent = `${count} tokens in ${seconds.toFixed(2)} s, ${(count / seconds).toFixed(0)} a second; ` +
      `seed ${event.seed}`;
  at("again").hidden = at("seed").value !== "";
  at("again").textContent = "keep seed " + event.seed;
  at("again").value = event.seed;
}

// --- candidates

// [{token, logprob, top: [{token, logprob}]}] of a choice of either interface.
function tokens(choice) {
  const all = choice.logprobs;
  if (!all) return [];
  if (all.content) {
    return all.content.map((one) => ({token: one.token, logprob: one.logprob, top: one.top_logprobs}));
  }
  return (all.tokens ?? []).map((token, i) => ({token, logprob: all.token_logprobs[i],
      top: Object.entries(all.top_logprobs?.[i] ?? {}).map(([name, logprob]) => ({token: name, logprob}))}));
}

// The tokens up to `end` again, drawn by the same seed: with the model's probabilities, or with those
// of the cut that they were drawn from.
async function drawnAgain(end, logprobs_mode) {
  const fields = {...withCandidates(last.fields), stream: false, max_tokens: end, logprobs_mode, return_token_ids: true};
  const answer = await (await post(last.path, fields)).json();
  const choice = answer.choices[0];
  const prompt = choice.prompt_token_ids ?? answer.prompt_token_ids ?? [];
  return {drawn: tokens(choice), ids: [...prompt, ...(choice.token_ids ?? [])], prompted: prompt.length};
}

// The rules that drop tokens, in the order in which they act: each with the fields that switch off those after it.
const LATER = {typical_p: 1, top_n_sigma: 0, xtc_probability: 0};
const RULES = [["min_p", {top_k: 0, top_p: 1, ...LATER}], ["top_k", {top_p: 1, ...LATER}], ["top_p", LATER]];

// Which rule dropped each of the candidates `lost` after these ids: the server keeps or drops them with the rules up to
// each one switched on.
async function droppedBy(ids, lost) {
  const fields = last.fields;
  if (fields.temperature === 0) return new Map(lost.map((name) => [name, "temperature 0"]));
  // These count the tokens of the output, which are a part of the prompt here.
  if (fields.frequency_penalty || fields.presence_penalty) return new Map();
  const common = {model, prompt: ids, max_tokens: 1, logprobs: SHOWN, logprobs_mode: "processed_logprobs"};
  for (const name of ["temperature", "repetition_penalty", "min_p", "top_k", "top_p"]) {
    if (fields[name] !== undefined) common[name] = fields[name];
  }
  const rules = new Map();
  for (const [rule, without] of RULES) {
    const [step] = tokens((await (await post("/v1/completions", {...common, ...without})).json()).choices[0]);
    const kept = new Set([...step.top, step].map((one) => one.token));
    for (const name of lost) if (!kept.has(name) && !rules.has(name)) rules.set(name, rule);
  }
  for (const name of lost) if (!rules.has(name)) rules.set(name, "another rule");
  return rules;
}

async function showCandidates(span, first, end) {
  for (const other of document.querySelectorAll(".token.chosen")) other.className = "token";
  span.className = "token chosen";
  const [of_model, of_cut] = await Promise.all([drawnAgain(end, "raw_logprobs"), drawnAgain(end, "processed_logprobs")]);
  const panel = at("candidates");
  panel.textContent = "";
  for (let i = first; i < end; ++i) {
    const lost = lostOf(of_model.drawn[i], of_cut.drawn[i]);
    const ids = of_model.ids.slice(0, of_model.prompted + i);
    const rules = lost.length > 0 ? await droppedBy(ids, lost) : new Map();
    panel.append(candidateTable(of_model.drawn[i], of_cut.drawn[i], rules));
  }
  panel.hidden = false;
}

const readable = (token) => token.replaceAll(" ", "\u2423").replaceAll("\n", "\u21b5").replaceAll("\t", "\u21e5");
const percent = (logprob) => logprob === undefined ? "\u2013" : (100 * Math.exp(logprob)).toFixed(2) + " %";

// The candidates of the model that the cut does not have, where all that it has are known.
function lostOf(of_model, of_cut) {
  if (of_cut.top.length >= SHOWN) return [];
  const kept = new Set([...of_cut.top, of_cut].map((one) => one.token));
  return of_model.top.map((one) => one.token).filter((name) => !kept.has(name));
}

function candidateTable(of_model, of_cut, rules) {
  const by_cut = new Map([...of_cut.top, of_cut].map((one) => [one.token, one.logprob]));
  const by_model = new Map([...of_model.top, of_model].map((one) => [one.token, one.logprob]));
  const names = [...new Set([...by_model.keys(), ...by_cut.keys()])];
  const value = (name) => Math.exp(by_model.get(name) ?? by_cut.get(name));
  names.sort((a, b) => value(b) - value(a));
  const table = element("table");
  const kept = of_cut.top.length < SHOWN ? `${by_cut.size} tokens were kept` : `${SHOWN} or more tokens were kept`;
  table.append(element("caption", `\u201c${readable(of_model.token)}\u201d was drawn; ${kept}`, "quiet"));
  const head = element("tr");
  for (const title of ["token", "of the model", "after the cut", ""]) head.append(element("th", title));
  table.append(head);
  for (const name of names) {
    const kind = name === of_model.token ? "drawn" : by_cut.has(name) || of_cut.top.length >= SHOWN ? "" : "lost";
    const row = element("tr", "", kind);
    row.append(element("td", readable(name)), element("td", percent(by_model.get(name)), "number"),
               element("td", percent(by_cut.get(name)), "number"));
    const bar = element("div", "", "bar");
    bar.style.width = (100 * Math.exp(by_cut.get(name) ?? -Infinity)).toFixed(1) + "%";
    const cell = element("td", rules.has(name) ? "dropped by " + rules.get(name) : "");
    if (!rules.has(name)) cell.append(bar);
    row.append(cell);
    table.append(row);
  }
  return table;
}

// --- what a user does

at("form").addEventListener("submit", (event) => { event.preventDefault(); run(); });
at("stop").addEventListener("click", () => running && running.abort());
at("clear").addEventListener("click", () => setMode("chat"));
at("again").addEventListener("click", () => {
  at("seed").value = at("again").value;
  at("again").hidden = true;
  showRequest();
});
for (const id of ["completion", "chat"]) at(id).addEventListener("click", () => setMode(id));
at("as_curl").addEventListener("click", () => setForm("curl"));
at("as_python").addEventListener("click", () => setForm("python"));
for (const id of FORM) at(id).addEventListener("input", showRequest);
at("key").addEventListener("change", showState);
readLink();
showState();
