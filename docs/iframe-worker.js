/* Search without a server: browsers start no worker from a file, so a hidden frame takes its place. The theme looks for this name. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => {
        this.deliver = (data) => inside.dispatchEvent(new inside.MessageEvent("message", { data }));
        this.waiting.splice(0).forEach(this.deliver);
      };
      inside.document.body.appendChild(script);
    }

    postMessage(data) {
      if (this.deliver) this.deliver(data);
      else this.waiting.push(data);
    }

    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
