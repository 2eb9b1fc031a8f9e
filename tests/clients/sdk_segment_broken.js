const { Analytics } = require('@segment/analytics-node')

const [, , host, writeKey] = process.argv
const analytics = new Analytics({ host, writeKey, maxRetries: 1, flushAt: 2 })
analytics.on('error', (error) => console.error(error))
analytics.track({ userId: 'u-1', event: 'Good' })
analytics.track({ userId: 'u-1', event: 'Broken', properties: { title: 'party \u{1f389}'.slice(0, 7) } })
analytics.closeAndFlush()
