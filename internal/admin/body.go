package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
)

// maxDepth is how deep a request's JSON may be nested. Ours goes three deep.
const maxDepth = 16

// receive reads the body of a request before anything else is done for it, so that a slow one holds no more than its connection,
// which may be closed to make room for others.
func (s *Server) receive(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 0 { // at most maxBody, and never unknown
			if !s.o.Memory.Take(r.ContentLength) {
				w.Header().Set("Connection", "close")
				w.Header().Set("Retry-After", "1")
				refuse(w, http.StatusServiceUnavailable, "No memory is free for the body of the request.")
				return
			}
			defer s.o.Memory.Give(r.ContentLength)
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
			b, status, detail := readBody(w, r)
			if status != 0 {
				refuse(w, status, detail)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(b))
		}
		httpguard.Received(r)
		next.ServeHTTP(w, r)
	}
}

// readBody reads all of it within the listener's read timeout. It returns 0 when that went well.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, status int, detail string) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, http.StatusRequestEntityTooLarge, "The body is larger than 1 MiB."
	case err != nil:
		// Of a body that was too slow the time to answer is over as well.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
		return nil, http.StatusBadRequest, "The body ended early."
	}
	return b, 0, ""
}

// decode reads exactly one JSON object with no more than the fields of into. An error is deadletter.ErrInvalid.
func decode(b []byte, into any) error {
	if err := inspect(b); err != nil {
		return fmt.Errorf("%w: the body %w", deadletter.ErrInvalid, err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%w: %s must be %s", deadletter.ErrInvalid, wrong.Field, kinds[wrong.Type.Kind()])
	}
	if err != nil {
		return fmt.Errorf("%w: the body: %s", deadletter.ErrInvalid, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// kinds names what a field must be.
var kinds = map[reflect.Kind]string{
	reflect.Bool: "true or false", reflect.Int: "an integer", reflect.String: "a text", reflect.Struct: "an object",
	reflect.Map: "an object", reflect.Slice: "a text or a list of texts",
}

// inspect refuses what encoding/json lets pass: fields that are given twice or in other letters, null for any type, bytes
// that are no UTF-8, any depth, more than one value.
func inspect(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("is not a JSON object")
	}
	fields := []map[string]bool{{}} // of the objects that are open; nil for an array
	for key := true; len(fields) > 0; {
		t, err := d.Token()
		if err != nil {
			return errors.New("is not JSON")
		}
		open := fields[len(fields)-1]
		switch t := t.(type) {
		case json.Delim:
			switch {
			case t == '}' || t == ']':
				fields = fields[:len(fields)-1]
			case len(fields) == maxDepth:
				return fmt.Errorf("is nested more than %d deep", maxDepth)
			case t == '{':
				fields = append(fields, map[string]bool{})
			default:
				fields = append(fields, nil)
			}
			key = true
			continue
		case nil:
			return errors.New("has a null")
		case string:
			if open != nil && key {
				if err := meet(open, t); err != nil {
					return err
				}
				key = false
				continue
			}
		}
		key = true
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("has something behind the object")
	}
	return nil
}

// meet takes note of a field. Our names are of these letters; encoding/json would also take others for them.
func meet(fields map[string]bool, name string) error {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_-") != "" {
		return fmt.Errorf("has an unknown field %.100q", name)
	}
	if fields[name] {
		return fmt.Errorf("has the field %q twice", name)
	}
	fields[name] = true
	return nil
}
