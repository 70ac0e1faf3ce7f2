package httpguard

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

	"github.com/go-json-experiment/json/jsontext"
)

// MaxBody is how large a body of the control listener may be, in bytes.
const MaxBody = 1 << 20

// maxDepth is how deep a request's JSON may be nested. Ours goes three deep.
const maxDepth = 16

// ReadBody reads all of it within the listener's read timeout. It returns 0 when that went well.
func ReadBody(w http.ResponseWriter, r *http.Request) (body []byte, status int, detail string) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, http.StatusRequestEntityTooLarge, "The body is larger than 1 MiB."
	}
	if err != nil {
		// Of a body that was too slow the time to answer is over as well.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
		return nil, http.StatusBadRequest, "The body ended early."
	}
	return b, 0, ""
}

// Decode reads exactly one JSON object with no more than the fields of into. An error says what is wrong with it.
func Decode(b []byte, into any) error {
	if err := inspect(b); err != nil {
		return fmt.Errorf("the body %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s must be %s", wrong.Field, kinds[wrong.Type.Kind()])
	}
	if err != nil {
		return fmt.Errorf("the body: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// kinds names what a field must be.
var kinds = map[reflect.Kind]string{
	reflect.Bool: "true or false", reflect.Int: "an integer", reflect.String: "a text", reflect.Struct: "an object",
	reflect.Map: "an object", reflect.Slice: "a text or a list of texts",
}

// inspect refuses JSON that encoding/json accepts: fields that are given twice or in another case, null for any type,
// bytes that are not UTF-8, any depth, more than one value.
func inspect(b []byte) error {
	if !bytes.HasPrefix(bytes.TrimLeft(b, JSONSpace), []byte("{")) {
		return errors.New("is not a JSON object")
	}
	for d := jsontext.NewDecoder(bytes.NewBuffer(b)); d.StackDepth() <= maxDepth; {
		t, err := d.ReadToken()
		in, n := d.StackIndex(d.StackDepth()) // names count, too
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, jsontext.ErrDuplicateName):
			syntax, _ := errors.AsType[*jsontext.SyntacticError](err)
			return fmt.Errorf("has the field %.100q twice", syntax.JSONPointer.LastToken())
		case err != nil:
			return fmt.Errorf("is not JSON: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
		case t.Kind() == 'n':
			return errors.New("has a null")
		case in == '{' && n%2 == 1 && strings.Trim(t.String(), "abcdefghijklmnopqrstuvwxyz_-") != "":
			return fmt.Errorf("has an unknown field %.100q", t)
		case in == 0 && n > 1:
			return errors.New("has data after the JSON object")
		}
	}
	return fmt.Errorf("is nested more than %d deep", maxDepth)
}

// CheckEmpty reads the body, which may be nothing or an empty JSON object: a field that is not understood must not be
// taken for understood. It returns 0 when the body is fine.
func CheckEmpty(w http.ResponseWriter, r *http.Request) (status int, detail string) {
	b, status, detail := ReadBody(w, r)
	if status == 0 && len(bytes.Trim(b, JSONSpace)) > 0 && Decode(b, &struct{}{}) != nil {
		return http.StatusBadRequest, "The body must be empty or {}."
	}
	return status, detail
}

// JSONSpace is white space in JSON; what Go takes for space is more.
const JSONSpace = " \t\r\n"
