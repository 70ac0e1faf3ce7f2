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

	"github.com/go-json-experiment/json/jsontext"
)

// MaxBody is how large a body of the control listener may be, in bytes.
const MaxBody = 1 << 20

// maxDepth is how deep a request's JSON may be nested. Ours goes three deep.
const maxDepth = 16

// DecodeBody is Decode for the body of a request, whose bytes are here already. No body is an empty object.
func DecodeBody(r *http.Request, into any) error {
	b, err := io.ReadAll(r.Body)
	if err != nil || len(bytes.Trim(b, JSONSpace)) == 0 {
		return err
	}
	return Decode(b, into)
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
		field := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:] // without the name of an embedded struct
		return fmt.Errorf("%s must be %s", field, kinds[wrong.Type.Kind()])
	}
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "json: ")
		if strings.HasPrefix(text, "unknown field ") {
			text += "; there are"
			for _, f := range reflect.VisibleFields(reflect.TypeOf(into).Elem()) {
				if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
					text += " " + name
				}
			}
		}
		return fmt.Errorf("the body: %s", text)
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

// CheckEmpty refuses a body that is neither nothing nor an empty JSON object: a field that is not understood must not
// be taken for understood. It returns 0 when the body is fine.
func CheckEmpty(r *http.Request) (status int, detail string) {
	if DecodeBody(r, &struct{}{}) != nil {
		return http.StatusBadRequest, "The body must be empty or {}."
	}
	return 0, ""
}

// JSONSpace is white space in JSON; what Go takes for space is more.
const JSONSpace = " \t\r\n"
