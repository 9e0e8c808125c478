/* The site's search runs in a worker, and browsers start none for a page that was opened from a disk. There a hidden
   frame takes the worker's place: it runs the same script, and messages go to and fro as events. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      const page = inside.document
      inside.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      inside.importScripts = (...scripts) => scripts.reduce((before, one) => before.then(() => load(one)), Promise.resolve())
      const load = source => new Promise((loaded, failed) => {
        const element = page.createElement("script")
        element.src = String(source)
        element.onload = loaded
        element.onerror = failed
        page.body.append(element)
      })
      load(script).then(() => {
        this.ready = true
        for (const data of this.waiting.splice(0)) this.postMessage(data)
      })
    }
    postMessage(data) {
      if (!this.ready) return void this.waiting.push(data)
      const inside = this.frame.contentWindow
      inside.dispatchEvent(new MessageEvent("message", { data }))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
