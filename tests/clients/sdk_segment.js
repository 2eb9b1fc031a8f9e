const { Analytics } = require('@segment/analytics-node')

const [, , host, writeKey] = process.argv
const analytics = new Analytics({ host, writeKey, maxRetries: 1 })
analytics.on('error', (error) => console.error(error))
analytics.track({ userId: 'u-1', event: 'Order Completed', properties: { total: 12.5 } })
analytics.identify({ userId: 'u-1', traits: { plan: 'pro' } })
analytics.closeAndFlush()
