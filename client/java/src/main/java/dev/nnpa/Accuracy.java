// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.nnpa.network.v1.MeasureAccuracyResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalDouble;
import java.util.stream.StreamSupport;

/**
 * What DLFLOAT16 does to a model, as {@link Network#measureAccuracy} measures it.
 *
 * @param verdict the sentence that answers
 * @param drop what the worst machine loses: accuracy, or without labels the share of answers
 * @param table figures side by side: FP32 where there are labels, each machine, and INT8
 * @param json the whole report, with the keys of {@code nnpa network validate --json}
 * @param text the report for people
 * @param html the report as a page, empty unless asked for
 */
public record Accuracy(
    String verdict, double drop, List<Run> table, String json, String text, String html) {

  /**
   * The figures of FP32 or of one machine.
   *
   * @param name "FP32", a machine, or a machine with "int8"
   * @param accuracy the share of labels that are the answer
   * @param top5 the share of labels that are among the five largest
   * @param drop the loss beside FP32
   * @param changed rows whose answer turned
   * @param l2r the largest relative error of the outputs, empty where none has numbers
   */
  public record Run(
      String name,
      OptionalDouble accuracy,
      OptionalDouble top5,
      double drop,
      long changed,
      OptionalDouble l2r) {}

  static Accuracy of(MeasureAccuracyResponse answer) {
    JsonObject report = JsonParser.parseString(answer.getJson()).getAsJsonObject();
    List<Run> table = new ArrayList<>();
    if (!report.get("fp32").isJsonNull()) {
      table.add(run("FP32", report.get("fp32"), 0, 0, OptionalDouble.of(0)));
    }
    double drop = 0;
    for (JsonObject run : objects(report.getAsJsonArray("runs"))) {
      if (run.get("drop").isJsonNull()) { // values beyond DLFLOAT16 do not saturate in it
        continue;
      }
      String machine = run.get("machine").getAsString();
      boolean isInt8 = !run.get("numbers").getAsString().equals("dlfloat16");
      double lost = run.get("drop").getAsDouble();
      long changed = run.get("changed").getAsLong();
      table.add(
          run(isInt8 ? machine + " int8" : machine, run.get("labels"), lost, changed, l2r(run)));
      drop = isInt8 ? drop : Math.max(drop, lost);
    }
    String verdict = report.get("verdict").getAsString();
    return new Accuracy(
        verdict, drop, List.copyOf(table), answer.getJson(), answer.getText(), answer.getHtml());
  }

  private static Run run(
      String name, JsonElement labels, double drop, long changed, OptionalDouble l2r) {
    return new Run(
        name, number(labels, "accuracy"), number(labels, "top5"), drop, changed, l2r);
  }

  private static OptionalDouble l2r(JsonObject run) {
    return objects(run.getAsJsonArray("outputs")).stream()
        .map(output -> number(output, "l2r"))
        .flatMapToDouble(OptionalDouble::stream)
        .max();
  }

  private static OptionalDouble number(JsonElement object, String key) {
    JsonElement figure = object.isJsonNull() ? object : object.getAsJsonObject().get(key);
    return figure.isJsonNull() ? OptionalDouble.empty() : OptionalDouble.of(figure.getAsDouble());
  }

  private static List<JsonObject> objects(JsonArray array) {
    return StreamSupport.stream(array.spliterator(), false)
        .map(JsonElement::getAsJsonObject)
        .toList();
  }

  /** Returns the verdict. */
  @Override
  public String toString() {
    return verdict;
  }
}
