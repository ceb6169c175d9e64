// SPDX-License-Identifier: Apache-2.0
// Browsers start no worker for a page that is opened as a file. There, the search's worker lives in a hidden frame.
"use strict";
if (location.protocol === "file:") {
  // By the other name the worker knows it.
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.document.open();
      // What it posts, as workers do, is for whoever made it.
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      const ready = new Promise((loaded) => { script.onload = loaded; });
      script.src = url;
      inside.document.append(inside.document.createElement("html"));
      inside.document.documentElement.append(script);
      inside.document.close();
      this.postMessage = (data) => ready.then(() => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
