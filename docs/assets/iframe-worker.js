// The search of the site runs in a Worker, which browsers refuse to pages that are opened as files. There a hidden
// frame runs the same script instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.#tell(this, data);
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, location.href).href;
      script.onload = () => {
        this.waiting.forEach((data) => this.#tell(this.inside, data));
        this.waiting = null;
      };
      frame.contentDocument.body.append(script);
    }

    #tell(target, data) {
      const message = new MessageEvent("message", { data });
      target.dispatchEvent(message);
      if (target === this) this.onmessage?.(message);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.#tell(this.inside, data);
    }
  };
}
