'use strict'
// Every client may relay, and all mail goes to the sink: what `relayhost` is to Postfix.

exports.hook_connect = function (next, connection) {
  connection.relaying = true
  next()
}

exports.hook_get_mx = function (next) {
  next(OK, { exchange: '127.0.0.1', port: @SINK_PORT@, priority: 0 })
}
