"use strict";
// The timeline of the report. Everything else on the page is plain HTML.
// Names come from traces and may hold anything: they reach the page as text, never as markup.

const $ = (id) => document.getElementById(id);

/** Says so where something went wrong: to the reader, and to a test. */
function fail(fault) {
  document.body.dataset.error = String(fault);
  if ($("loading")) $("loading").textContent = `The timeline cannot be shown: ${fault}`;
}
addEventListener("error", (event) => fail(event.message));
addEventListener("unhandledrejection", (event) => fail(event.reason));

function timeText(us) {
  const size = Math.abs(us);
  const [scale, unit] = size >= 999950 ? [1e6, "s"] : size >= 999.95 ? [1e3, "ms"] : [1, "µs"];
  const value = us / scale;
  return value.toFixed(Math.abs(value) < 9.9995 ? 3 : Math.abs(value) < 99.995 ? 2 : 1) + " " + unit;
}

function changeText(us) {
  if (Math.abs(us) < 0.0005) return "none"; // less than a trace can tell
  return (us < 0 ? "−" : "+") + timeText(Math.abs(us));
}

const KIND_WORDS = {
  host_work: "host work", host_call: "call", host_return: "return of a blocking call", kernel: "kernel",
  memcpy: "copy", memset: "set", collective: "collective", arrival: "arrival at a collective",
};
const WHY_WORDS = {
  thread_order: "the task before it on its thread ended", hand_over: "another thread handed over to it",
  launch: "it was launched", stream_order: "the task before it on its stream ended",
  event_wait: "the event it waits for was reached", host_sync: "the device work it waits for ended",
  queue_full: "the launch queue had room again", rendezvous: "the last rank arrived",
};

/** A kernel's name without return type and template arguments, for a small box. */
const brief = (name) => name.replace(/^void\s+/, "").replace(/[<(].*$/s, "") || name;

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}
