package wire

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Protocol is how a service's calls and answers cross the wire.
type Protocol interface {
	// Read finds the operation and its input, as JSON, in a request whose body was read.
	Read(r *http.Request, body []byte) (operation string, in []byte, err error)
	// Write sends the result of an operation.
	Write(w http.ResponseWriter, r *http.Request, operation string, out any) error
	// Fail sends an error.
	Fail(w http.ResponseWriter, r *http.Request, e *Error)
}

// RequestID makes the id that AWS gives to a request.
func RequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// JSON is awsJson 1.0 and 1.1: the operation is in X-Amz-Target, input and output are JSON documents.
// (Smithy, "AWS JSON 1.0/1.1 protocol".)
type JSON struct {
	// Query is set for services whose errors also carry the code of their older query protocol.
	Query bool
}

// Read implements Protocol.
func (JSON) Read(r *http.Request, body []byte) (string, []byte, error) {
	_, operation, ok := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if !ok || operation == "" {
		return "", nil, &Error{Status: http.StatusBadRequest, Code: "UnknownOperationException", Message: "the request has no X-Amz-Target of the form Service.Operation"}
	}
	return operation, body, nil
}

// Write implements Protocol.
func (j JSON) Write(w http.ResponseWriter, r *http.Request, _ string, out any) error {
	if out == nil {
		out = struct{}{}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("marshal the result: %w", err)
	}
	j.send(w, r, http.StatusOK, body)
	return nil
}

// Fail implements Protocol.
func (j JSON) Fail(w http.ResponseWriter, r *http.Request, e *Error) {
	if j.Query {
		fault := "Sender"
		if status(e) >= http.StatusInternalServerError {
			fault = "Receiver"
		}
		code := e.QueryCode
		if code == "" {
			code = e.Code
		}
		w.Header().Set("X-Amzn-Query-Error", code+";"+fault)
	}
	copyHeader(w, e)
	body, err := json.Marshal(fields(e, map[string]any{"__type": e.Code}))
	if err != nil {
		body = []byte(`{"__type":"InternalFailure"}`)
	}
	j.send(w, r, status(e), body)
}

func (JSON) send(w http.ResponseWriter, r *http.Request, code int, body []byte) {
	contentType := "application/x-amz-json-1.1"
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-amz-json-1.0") {
		contentType = "application/x-amz-json-1.0"
	}
	Send(w, code, contentType, body)
}

// Send writes an answer with its request id, as every protocol does. It is not an error if the
// client has gone.
func Send(w http.ResponseWriter, code int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if w.Header().Get("X-Amzn-RequestId") == "" {
		w.Header().Set("X-Amzn-RequestId", RequestID())
	}
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// maxDepth bounds the parts of a parameter's name: no input of AWS is nested so deep.
const maxDepth = 16

// Query is awsQuery: the input is a form with an Action, the output is XML.
// (Smithy, "AWS query protocol".)
type Query struct {
	Namespace string // of the answers, such as https://sts.amazonaws.com/doc/2011-06-15/
}

// Read implements Protocol. Lists (Name.member.N) become arrays, structures (A.B) objects, and every
// value a string.
func (Query) Read(_ *http.Request, body []byte) (string, []byte, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return "", nil, &Error{Status: http.StatusBadRequest, Code: "MalformedInput", Message: "the body is not a form"}
	}
	operation := form.Get("Action")
	if operation == "" {
		return "", nil, &Error{Status: http.StatusBadRequest, Code: "MissingAction", Message: "the request has no Action"}
	}
	form.Del("Action")
	form.Del("Version")
	root := map[string]any{}
	for name, values := range form {
		path := strings.SplitN(name, ".", maxDepth+1)
		if len(path) > maxDepth {
			return "", nil, &Error{Status: http.StatusBadRequest, Code: "MalformedInput", Message: "a parameter's name has too many parts"}
		}
		if err := put(root, path, values[0]); err != nil {
			return "", nil, &Error{Status: http.StatusBadRequest, Code: "MalformedInput", Message: err.Error()}
		}
	}
	in, err := json.Marshal(lists(root))
	if err != nil {
		return "", nil, fmt.Errorf("marshal the input: %w", err)
	}
	return operation, in, nil
}

func put(at map[string]any, path []string, value string) error {
	name := path[0]
	if len(path) == 1 {
		if _, ok := at[name]; ok {
			return fmt.Errorf("the parameter %s is a value and a structure", name)
		}
		at[name] = value
		return nil
	}
	next, ok := at[name].(map[string]any)
	if !ok {
		if at[name] != nil {
			return fmt.Errorf("the parameter %s is a value and a structure", name)
		}
		next = map[string]any{}
		at[name] = next
	}
	return put(next, path[1:], value)
}

// lists turns {"member": {"1": a, "2": b}} into [a, b].
func lists(v any) any {
	object, ok := v.(map[string]any)
	if !ok {
		return v
	}
	if members, ok := object["member"].(map[string]any); ok && len(object) == 1 {
		list := []any{}
		for i := 1; i <= len(members); i++ {
			list = append(list, lists(members[strconv.Itoa(i)]))
		}
		return list
	}
	for name, value := range object {
		object[name] = lists(value)
	}
	return object
}

// Write implements Protocol.
func (q Query) Write(w http.ResponseWriter, _ *http.Request, operation string, out any) error {
	id := RequestID()
	if out == nil {
		out = struct{}{}
	}
	result, err := xmlElement(operation+"Result", out)
	if err != nil {
		return fmt.Errorf("marshal the result: %w", err)
	}
	body := fmt.Sprintf(`<%[1]sResponse xmlns="%[2]s">%[3]s<ResponseMetadata><RequestId>%[4]s</RequestId></ResponseMetadata></%[1]sResponse>`,
		operation, q.Namespace, result, id)
	w.Header().Set("X-Amzn-RequestId", id)
	Send(w, http.StatusOK, "text/xml", []byte(body))
	return nil
}

// Fail implements Protocol.
func (q Query) Fail(w http.ResponseWriter, _ *http.Request, e *Error) {
	code, fault := e.QueryCode, "Sender"
	if code == "" {
		code = e.Code
	}
	if status(e) >= http.StatusInternalServerError {
		fault = "Receiver"
	}
	id := RequestID()
	text, err := xmlElement("Error", struct{ Type, Code, Message string }{fault, code, e.Message})
	if err != nil {
		text = nil
	}
	copyHeader(w, e)
	w.Header().Set("X-Amzn-RequestId", id)
	Send(w, status(e), "text/xml", fmt.Appendf(nil, `<ErrorResponse xmlns="%s">%s<RequestId>%s</RequestId></ErrorResponse>`, q.Namespace, text, id))
}

func xmlElement(name string, v any) ([]byte, error) {
	var b strings.Builder
	e := xml.NewEncoder(&b)
	if err := e.EncodeElement(v, xml.StartElement{Name: xml.Name{Local: name}}); err != nil {
		return nil, err
	}
	if err := e.Close(); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// RESTError sends an error as restJson does: the code in a header, the message and fields as JSON.
// (Smithy, "AWS restJson1 protocol".)
func RESTError(w http.ResponseWriter, e *Error) {
	copyHeader(w, e)
	w.Header().Set("X-Amzn-ErrorType", e.Code)
	body, err := json.Marshal(fields(e, map[string]any{}))
	if err != nil {
		body = []byte(`{}`)
	}
	Send(w, status(e), "application/json", body)
}

func status(e *Error) int {
	if e.Status == 0 {
		return http.StatusBadRequest
	}
	return e.Status
}

func copyHeader(w http.ResponseWriter, e *Error) {
	for name, values := range e.Header {
		w.Header()[name] = values
	}
}

func fields(e *Error, body map[string]any) map[string]any {
	for name, value := range e.Fields {
		body[name] = value
	}
	body["message"] = e.Message
	return body
}
