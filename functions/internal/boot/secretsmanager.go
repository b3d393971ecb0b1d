package boot

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// SecretsManager returns the secret with this ARN or name; its text is the secret's whole string. It needs
// one call of Secrets Manager, GetSecretValue. (Secrets Manager API reference; Smithy, "AWS JSON 1.1
// protocol".)
func SecretsManager(cfg aws.Config, name, arn string) *Secret {
	caller := NewCaller(cfg)
	return NewSecret(name, nil, func(ctx context.Context) (string, error) {
		endpoint, err := caller.Endpoint(ctx, "Secrets Manager", "secretsmanager", "")
		if err != nil {
			return "", err
		}
		body, err := json.Marshal(map[string]string{"SecretId": arn})
		if err != nil {
			return "", err
		}
		answer, err := caller.repeat(ctx, Call{
			Service: "secretsmanager", Address: endpoint + "/", Body: body,
			Header: map[string]string{"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "secretsmanager.GetSecretValue"},
		})
		if err != nil {
			return "", err
		}
		var value struct{ SecretString string }
		if err := json.Unmarshal(answer, &value); err != nil {
			return "", errors.New("cannot read the answer of Secrets Manager") // without the answer: it holds the secret
		}
		return value.SecretString, nil
	})
}
