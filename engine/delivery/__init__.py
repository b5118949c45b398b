"""How deliveries are spread, hinted at, retried and judged."""
