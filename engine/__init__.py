"""The service without HTTP and without SMTP sockets: rules, records and the order of business."""
