// The search of the site runs in a worker, which browsers do not start for pages that are files.  For those, this class
// runs the worker's script in a hidden frame instead (the idea of the npm package iframe-worker).
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inside = (this.inside = this.frame.contentWindow)
      inside.document.open()
      inside.document.write("<html><body></body></html>")
      inside.document.close()
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script")
          Object.assign(script, { src: source, onload: resolve, onerror: reject })
          inside.document.body.appendChild(script)
        })
      inside.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve())
      this.ready = load(url)
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
