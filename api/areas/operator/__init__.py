"""The operator's part of the API, for people of `WAYBILL_OPERATORS`: `/v1/operator`."""
