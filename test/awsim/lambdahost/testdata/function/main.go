// Command function does what its event tells it, for the tests of the host.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

// command is an event of the tests. Others are known by their fields.
type command struct {
	Do      string `json:"do"`
	Text    string `json:"text"`
	Size    int    `json:"size"`
	Address string `json:"address"` // somebody to talk to

	Records        []events.SQSMessage `json:"Records"`
	RequestContext json.RawMessage     `json:"requestContext"`
}

var (
	calls      int // in this process
	background = make(chan error, 1)
)

func main() {
	switch os.Getenv("AT_INIT") {
	case "exit":
		os.Exit(7) //nolint:forbidigo // what is tested
	case "hang":
		hang()
	case "once": // the first init of a host fails, the next ones do not
		if err := os.Remove(os.Getenv("MARK")); err == nil {
			os.Exit(7) //nolint:forbidigo // what is tested
		}
	case "hello":
		if _, err := talk(os.Getenv("ADDRESS"), "init"); err != nil {
			os.Exit(8) //nolint:forbidigo // what is tested
		}
	}
	lambda.Start(handle)
}

func handle(ctx context.Context, raw json.RawMessage) (any, error) {
	calls++
	var c command
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, err
	}
	switch {
	case c.Records != nil:
		return batch(c.Records)
	case c.RequestContext != nil:
		return proxy(raw)
	}
	switch c.Do {
	case "fail":
		return nil, errors.New(c.Text)
	case "panic":
		panic(c.Text)
	case "exit":
		os.Exit(3) //nolint:forbidigo // what is tested
	case "hang":
		fmt.Println("hanging")
		hang()
	case "talk": // say something and wait for an answer
		return talk(c.Address, c.Text)
	case "background":
		conn, err := net.Dial("tcp", c.Address)
		if err != nil {
			return nil, err
		}
		go func() {
			b := make([]byte, 1)
			_, err := conn.Read(b)
			if err == nil {
				_, err = conn.Write(b)
			}
			background <- errors.Join(err, conn.Close())
		}()
	case "join":
		return nil, <-background
	case "big":
		return strings.Repeat("x", c.Size), nil
	case "environment":
		return os.Environ(), nil
	case "context":
		lc, _ := lambdacontext.FromContext(ctx)
		deadline, _ := ctx.Deadline()
		return map[string]any{"id": lc.AwsRequestID, "arn": lc.InvokedFunctionArn, "deadline": deadline.UnixMilli(), "trace": os.Getenv("_X_AMZN_TRACE_ID")}, nil
	}
	return map[string]any{"pid": os.Getpid(), "calls": calls, "event": raw}, nil
}

// talk sends a line and returns the one that comes back.
func talk(address, text string) (string, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintln(conn, text); err != nil {
		return "", err
	}
	var answer string
	_, err = fmt.Fscanln(conn, &answer)
	return answer, err
}

// batch fails as the bodies of its messages say.
func batch(records []events.SQSMessage) (any, error) {
	failures := []map[string]any{}
	for _, r := range records {
		what, rest, _ := strings.Cut(r.Body, " ")
		switch what {
		case "fail":
			failures = append(failures, map[string]any{"itemIdentifier": r.MessageId})
		case "stranger":
			failures = append(failures, map[string]any{"itemIdentifier": "nobody"})
		case "null":
			return nil, nil
		case "text":
			return "this is no list", nil
		case "error":
			return nil, errors.New(rest)
		case "talk":
			if _, err := talk(rest, r.MessageId); err != nil {
				return nil, err
			}
		}
	}
	return map[string]any{"batchItemFailures": failures}, nil
}

// proxy answers a request through a gateway with the event that it was.
func proxy(raw json.RawMessage) (any, error) {
	var v struct {
		Path    string `json:"path"`
		RawPath string `json:"rawPath"`
		Query   struct {
			Address string `json:"address"`
		} `json:"queryStringParameters"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	answer := map[string]any{
		"statusCode": 200, "body": string(raw),
		"multiValueHeaders": map[string][]string{"Set-Cookie": {"a=1", "b=2"}},
		"headers":           map[string]string{"Content-Type": "application/json"},
	}
	switch v.Path + v.RawPath {
	case "/binary":
		answer["body"], answer["isBase64Encoded"] = "AAEC/w==", true
	case "/error":
		return nil, errors.New("refused")
	case "/malformed":
		return map[string]any{"statusCode": "teapot"}, nil
	case "/plain":
		return "plain", nil
	case "/cookies":
		answer["cookies"] = []string{"a=1", "b=2"}
		delete(answer, "multiValueHeaders")
	case "/talk":
		text, err := talk(v.Query.Address, "talk")
		if err != nil {
			return nil, err
		}
		answer["body"] = text
	}
	return answer, nil
}

// hang waits for what does not come. A bare select would be a deadlock, which ends the process.
func hang() {
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_, _ = l.Accept()
	}
}
