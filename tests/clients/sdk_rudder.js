const RudderAnalytics = require('@rudderstack/rudder-sdk-node')

const [, , host, writeKey] = process.argv
const analytics = new RudderAnalytics(writeKey, { dataPlaneUrl: host, flushAt: 2, retryCount: 1 })
analytics.track({ userId: 'u-1', event: 'Order Completed', properties: { total: 12.5 } })
analytics.identify({ userId: 'u-1', traits: { plan: 'pro' } })
analytics.flush()
