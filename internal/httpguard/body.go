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
	"unicode/utf8"
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
	switch {
	case !utf8.Valid(b):
		return errors.New("is not UTF-8")
	case !bytes.HasPrefix(bytes.TrimLeft(b, JSONSpace), []byte("{")):
		return errors.New("is not a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := inspectValue(d, 0); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON object")
	}
	return nil
}

var errNotJSON = errors.New("is not JSON")

// inspectValue inspects the next value, which is in so many objects and arrays.
func inspectValue(d *json.Decoder, depth int) error {
	t, err := d.Token()
	opened, nested := t.(json.Delim)
	switch {
	case err != nil:
		return errNotJSON
	case t == nil:
		return errors.New("has a null")
	case !nested:
		return nil
	case depth == maxDepth:
		return fmt.Errorf("is nested more than %d deep", maxDepth)
	}
	fields := map[string]bool{}
	for d.More() {
		if opened == '{' {
			t, _ := d.Token()
			name, isName := t.(string)
			if !isName {
				return errNotJSON
			}
			if err := checkField(fields, name); err != nil {
				return err
			}
		}
		if err := inspectValue(d, depth+1); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return errNotJSON
	}
	return nil
}

// checkField adds a name to the fields of an object. encoding/json would take other letters for those of our names.
func checkField(fields map[string]bool, name string) error {
	switch {
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_-") != "":
		return fmt.Errorf("has an unknown field %.100q", name)
	case fields[name]:
		return fmt.Errorf("has the field %q twice", name)
	}
	fields[name] = true
	return nil
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
