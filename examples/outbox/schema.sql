-- The service's own table. The outbox beside it is made by `sidecar outbox migrate`.
CREATE TABLE IF NOT EXISTS orders (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer text NOT NULL,
  cents bigint NOT NULL CHECK (cents > 0)
);
