'use strict'
// Any recipient is taken, and the loopback DNS responder has the senders' SPF and DKIM records. Mail without a valid DKIM
// signature is refused, so that a run shows that it was verified; the rest is discarded, which costs nothing.

exports.register = function () {
  require('node:dns').setServers(['127.0.0.1:@DNS_PORT@'])
  require('node:dns').promises.setServers(['127.0.0.1:@DNS_PORT@'])
}

exports.hook_connect = function (next, connection) {
  connection.remote.is_private = false // the plugin spf skips clients in private networks
  next()
}

exports.hook_rcpt = function (next) {
  next(OK)
}

exports.hook_queue = function (next, connection) {
  const found = connection.transaction.results.get('dkim')
  if (!found || !found.pass || !found.pass.length) return next(DENY, `dkim: ${JSON.stringify(found)}`)
  connection.transaction.notes.discard = true
  next()
}
