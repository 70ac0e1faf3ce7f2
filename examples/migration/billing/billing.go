// Package billing handles a message of the service, from either source.
package billing

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
)

// What can go wrong. A message that is invalid never succeeds; one for which something is away may do so later.
var (
	ErrInvalid = errors.New("invalid order")
	ErrAway    = errors.New("the payment provider is away")
)

// Bill bills one order.
func Bill(body []byte) error {
	var order struct {
		ID     string
		Amount int
	}
	switch err := json.Unmarshal(body, &order); {
	case err != nil, order.Amount <= 0:
		return fmt.Errorf("%w: %s", ErrInvalid, order.ID)
	case order.Amount > 1000: // an example of a failure that passes
		return fmt.Errorf("%w: %s", ErrAway, order.ID)
	}
	log.Print("billed ", order.ID)
	return nil
}
