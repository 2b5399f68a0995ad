// Search from a folder: browsers start no worker for a page of a file, so it runs in a hidden frame, which has what a worker
// has. The theme's search looks for the name IFrameWorker.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      const load = (src) => new Promise((resolve, reject) => {
        const script = frame.contentDocument.createElement("script");
        Object.assign(script, { src: new URL(src, document.baseURI).href, onload: resolve, onerror: reject });
        frame.contentDocument.body.append(script);
      });
      // One after another, because each may need the one before.
      this.inside.importScripts = (...sources) => sources.reduce((before, src) => before.then(() => load(src)), Promise.resolve());
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
  }
  Object.assign(window, { IFrameWorker, Worker: IFrameWorker });
}
