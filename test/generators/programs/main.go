// A client of oapi-codegen. Compiled beside what was generated, and run against the service.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"

	"client/convoke"
)

const (
	meetingId  = "of oapi-codegen"
	instanceId = "oapi-codegen"
)

// The fields that a push is known to have.
func describe(push convoke.NewMessageJSONRequestBody) []string {
	return []string{string(push.Event), push.MeetingId, push.Timestamp, fmt.Sprint(push.Message), fmt.Sprint(push.TargetAgents)}
}

func main() {
	ctx := context.Background()
	authorized := convoke.WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
		request.Header.Set("authorization", "Bearer "+os.Getenv("CONVOKE_API_KEY"))
		return nil
	})
	client, err := convoke.NewClientWithResponses(os.Getenv("CONVOKE_URL"), authorized)
	must(err)

	// An instance that pulls has none, so it may be absent.
	webhookUrl := os.Getenv("WEBHOOK_URL")
	registered, err := client.RegisterWithResponse(ctx, convoke.RegisterInput{
		InstanceId:   instanceId,
		InstanceName: "A machine",
		AgentIds:     []string{"a"},
		WebhookUrl:   &webhookUrl,
	})
	must(err)
	var instance convoke.RegisteredInstance = *registered.JSON201

	var meeting convoke.JoinMeetingInput_MeetingId
	must(meeting.FromJoinMeetingInputMeetingId0(meetingId))
	joined, err := client.JoinMeetingWithResponse(ctx, convoke.JoinMeetingInput{
		InstanceId: instanceId,
		MeetingId:  meeting,
		AgentIds:   []string{"a"},
	})
	must(err)
	var _ convoke.Membership = *joined.JSON201

	once := "once"
	answer, err := client.SendMessageWithResponse(ctx, meetingId, &convoke.SendMessageParams{IdempotencyKey: &once},
		convoke.SendMessageInput{Message: convoke.JsonObject{"content": "Hello", "n": 1}})
	must(err)
	var sent convoke.SentMessage = *answer.JSON201

	page, err := client.ListMessagesWithResponse(ctx, meetingId, nil)
	must(err)
	contents := []any{}
	for _, message := range page.JSON200.Data {
		contents = append(contents, message.Message["content"])
	}

	nobody, err := client.GetInstanceWithResponse(ctx, "nobody")
	must(err)
	var problem convoke.Problem = *nobody.ApplicationproblemJSON404

	_ = describe
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"health":   instance.Health,
		"seq":      sent.Seq,
		"contents": contents,
		"code":     problem.Code,
	}))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
