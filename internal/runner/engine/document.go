package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// document describes a state without its values, but for its outputs.
type document struct {
	lineage   string
	serial    int64
	resources int
	sealed    bool // it is encrypted or of another form: the number of its resources is not known
	checks    checks

	from, to int64  // offsets of its outputs, with the separator after their name
	values   string // the JSON there; empty if it is too large
}

// errNotToRead says that the outputs cannot be read from the state itself.
var errNotToRead = errors.New("the engine has to be asked for the outputs")

// outputs are those of a state, in the form of `output -json`.
func (d *document) outputs() ([]byte, error) {
	switch {
	case d == nil || d.sealed || d.to == 0:
		return nil, errNotToRead
	case d.values == "":
		return nil, errTooLong
	}
	return []byte(strings.TrimLeft(d.values, ": \t\r\n")), nil
}

// holds says whether it has resources.
func (d *document) holds() bool { return d != nil && (d.resources > 0 || d.sealed) }

// failing are the check blocks that fail; nil: none, or it is not known.
func (d *document) failing() *api.Checks {
	if d == nil {
		return nil
	}
	return d.checks.result()
}

// lacks says whether it certainly has fewer resources than another state.
func (d *document) lacks(of *document) bool {
	return d == nil || !d.sealed && !of.sealed && d.resources < of.resources
}

func (d *document) String() string {
	if d == nil {
		return "none"
	}
	holds := text.Count(d.resources, "resource")
	if d.sealed {
		holds = "encrypted or of another form: how many resources it holds is not known"
	}
	return runtext.WhichState(d.lineage, d.serial) + ", " + holds
}

var errNotState = errors.New("it is not a state file")

// readDocument reads a state token by token, because it may be large. nil means that there is no state: an empty
// file, or the answer of an engine for an empty place.
func readDocument(r io.Reader) (*document, error) {
	dec := json.NewDecoder(r)
	first, err := dec.Token()
	if errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // no state
	}
	if err != nil || first != json.Delim('{') {
		return nil, errNotState
	}
	var d document
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, errNotState
		}
		if err := d.readMember(dec, name); err != nil {
			return nil, errNotState
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, errNotState
	}
	if d.lineage == "" && !d.holds() {
		return nil, nil //nolint:nilnil // no state
	}
	return &d, nil
}

// readMember reads the value of a member of a state.
func (d *document) readMember(dec *json.Decoder, name json.Token) (err error) {
	switch name {
	case "lineage":
		err = dec.Decode(&d.lineage)
	case "serial":
		err = dec.Decode(&d.serial)
	case "resources":
		d.resources, err = skipValue(dec)
	case "outputs":
		d.from = dec.InputOffset()
		_, err = skipValue(dec)
		d.to = dec.InputOffset()
	case "check_results":
		err = d.checks.read(dec)
	case "modules": // before version 4
		var n int
		n, err = skipValue(dec)
		d.sealed = d.sealed || n > 0
	case "encrypted_data":
		d.sealed = true
		_, err = skipValue(dec)
	default:
		_, err = skipValue(dec)
	}
	return err
}

// skipValue reads over one value, and counts its direct members if it is a list.
func skipValue(dec *json.Decoder) (members int, err error) {
	depth := 0
	list := false
	for first := true; first || depth > 0; first = false {
		if depth == 1 && list && dec.More() {
			members++
		}
		token, err := dec.Token()
		if err != nil {
			return 0, err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			list = list || first && token == json.Delim('[')
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return members, nil
}

// documentOf reads the state in a file; nil: the file has none.
func documentOf(f *folder, name string) (*document, error) {
	file, err := f.open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // no state
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	d, err := readDocument(file)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", name, err)
	}
	if d != nil && d.to > 0 && d.to-d.from <= maxOutputJSON {
		values := make([]byte, d.to-d.from)
		if _, err := file.ReadAt(values, d.from); err != nil {
			return nil, err
		}
		d.values = string(values)
	}
	return d, nil
}
