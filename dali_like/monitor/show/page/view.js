// Page of `dali-like view`: shows a trace, a profile or running pipelines, as docs/tracing.md describes. No library, no build step.

import { showLive } from "./live.js";
import { fail, get } from "./parts.js";
import { showProfile } from "./profile.js";
import { showTrace } from "./trace.js";

try {
  const about = await get("about.json");
  if (about.kind === "trace") {
    document.title = `dali_like: ${about.name}`;
    showTrace(await get("trace.json"), about.name);
    document.body.dataset.state = "drawn";
  } else if (about.kind === "profile") {
    document.title = `dali_like: ${about.name}`;
    showProfile(await get("profile.json"), about.name);
    document.body.dataset.state = "drawn";
  } else {
    await showLive();
  }
} catch (error) {
  fail(error.message);
}
