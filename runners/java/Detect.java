// Runs an exported ONNX file on an image and prints the objects, one a line. The classes of
// ai.onnxruntime are Android's too (com.microsoft.onnxruntime:onnxruntime-android); there the image
// is a Bitmap instead of a BufferedImage.
//
//     java -cp onnxruntime-1.23.2.jar Detect.java model.onnx image.jpg 0.25
//
// It takes files of both outputs, end_to_end and raw.

import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtSession;
import ai.onnxruntime.TensorInfo;
import java.awt.Color;
import java.awt.Graphics2D;
import java.awt.RenderingHints;
import java.awt.image.BufferedImage;
import java.io.File;
import java.io.IOException;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.IntUnaryOperator;
import java.util.stream.IntStream;
import javax.imageio.ImageIO;

public final class Detect {
  /** Rows that a detector gives at most. */
  static final int ROWS_MAX = 300;

  /** Grey of what the image leaves free. */
  static final Color GREY = new Color(114, 114, 114);

  /** One object; corners are in pixels of the input until they are brought to the image. */
  record Row(float x1, float y1, float x2, float y2, float score, int index) {}

  /** Where an image lies in the input. */
  record Placement(int width, int height, int left, int top) {
    static Placement of(BufferedImage image, int inputWidth, int inputHeight) {
      double scale =
          Math.min((double) inputWidth / image.getWidth(), (double) inputHeight / image.getHeight());
      int width = (int) Math.max(1, Math.round(image.getWidth() * scale));
      int height = (int) Math.max(1, Math.round(image.getHeight() * scale));
      // An odd pixel that is left over goes to the right or the bottom.
      int left = (int) Math.max(0, Math.round((inputWidth - width) / 2.0 - 0.1));
      int top = (int) Math.max(0, Math.round((inputHeight - height) / 2.0 - 0.1));
      return new Placement(width, height, left, top);
    }

    Row onImage(Row row, BufferedImage image) {
      double across = (double) width / image.getWidth();
      double down = (double) height / image.getHeight();
      return new Row(
          inside((row.x1() - left) / across, image.getWidth()),
          inside((row.y1() - top) / down, image.getHeight()),
          inside((row.x2() - left) / across, image.getWidth()),
          inside((row.y2() - top) / down, image.getHeight()),
          row.score(),
          row.index());
    }

    private static float inside(double value, int max) {
      return (float) Math.min(max, Math.max(0, value));
    }
  }

  /** Three planes of the input, RGB in 0 to 1. */
  static FloatBuffer planes(BufferedImage image, Placement placement, int width, int height) {
    BufferedImage canvas = new BufferedImage(width, height, BufferedImage.TYPE_INT_RGB);
    Graphics2D graphics = canvas.createGraphics();
    graphics.setColor(GREY);
    graphics.fillRect(0, 0, width, height);
    // What is transparent lies on white.
    graphics.setColor(Color.WHITE);
    graphics.fillRect(placement.left(), placement.top(), placement.width(), placement.height());
    graphics.setRenderingHint(
        RenderingHints.KEY_INTERPOLATION, RenderingHints.VALUE_INTERPOLATION_BILINEAR);
    graphics.drawImage(
        image, placement.left(), placement.top(), placement.width(), placement.height(), null);
    graphics.dispose();
    FloatBuffer pixels = FloatBuffer.allocate(3 * width * height);
    for (int shift = 16; shift >= 0; shift -= 8) {
      for (int rgb : canvas.getRGB(0, 0, width, height, null, 0, width)) {
        pixels.put(((rgb >> shift) & 0xff) / 255f);
      }
    }
    return pixels.rewind();
  }

  /** Indices of the greatest scores, the greatest first; of equals the first comes first. */
  static int[] topIndices(float[] values) {
    return IntStream.range(0, values.length)
        .boxed()
        .sorted(Comparator.comparing((Integer index) -> -values[index]))
        .limit(ROWS_MAX)
        .mapToInt(Integer::intValue)
        .toArray();
  }

  /**
   * The two top-k steps of a raw file: the best 300 anchors by their best class, then the best 300
   * of those anchors' scores, so that an anchor may come with several classes.
   */
  static List<Row> rowsOfHeads(float[][] boxes, float[][] scores) {
    int classes = scores[0].length;
    float[] best = new float[scores.length];
    for (int anchor = 0; anchor < scores.length; anchor++) {
      best[anchor] = Float.NEGATIVE_INFINITY;
      for (float score : scores[anchor]) best[anchor] = Math.max(best[anchor], score);
    }
    int[] anchors = topIndices(best);
    float[] candidates = new float[anchors.length * classes];
    for (int at = 0; at < candidates.length; at++) {
      candidates[at] = scores[anchors[at / classes]][at % classes];
    }
    IntUnaryOperator anchorOf = (at) -> anchors[at / classes];
    return IntStream.of(topIndices(candidates))
        .limit(scores.length)
        .mapToObj(
            (at) -> {
              float[] box = boxes[anchorOf.applyAsInt(at)];
              return new Row(box[0], box[1], box[2], box[3], candidates[at], at % classes);
            })
        .toList();
  }

  /** Rows of one image, surest first. */
  static List<Row> rowsOf(OrtSession.Result outputs) throws OrtException {
    if (outputs.get("output0").isEmpty()) {
      float[][][] boxes = (float[][][]) outputs.get("boxes").orElseThrow().getValue();
      float[][][] scores = (float[][][]) outputs.get("scores").orElseThrow().getValue();
      return rowsOfHeads(boxes[0], scores[0]);
    }
    float[][][] rows = (float[][][]) outputs.get("output0").orElseThrow().getValue();
    List<Row> found = new ArrayList<>();
    for (float[] row : rows[0]) {
      found.add(new Row(row[0], row[1], row[2], row[3], row[4], (int) row[5]));
    }
    return found;
  }

  public static void main(String[] args) throws OrtException, IOException {
    BufferedImage image = ImageIO.read(new File(args[1]));
    float confidence = args.length > 2 ? Float.parseFloat(args[2]) : 0.25f;
    OrtEnvironment environment = OrtEnvironment.getEnvironment();
    try (OrtSession session = environment.createSession(args[0])) {
      TensorInfo info = (TensorInfo) session.getInputInfo().get("images").getInfo();
      long[] shape = info.getShape();
      int height = (int) shape[2];
      int width = (int) shape[3];
      Placement placement = Placement.of(image, width, height);
      FloatBuffer pixels = planes(image, placement, width, height);
      long[] one = {1, 3, height, width};
      try (OnnxTensor images = OnnxTensor.createTensor(environment, pixels, one);
          OrtSession.Result outputs = session.run(Map.of("images", images))) {
        for (Row row : rowsOf(outputs)) {
          Row found = placement.onImage(row, image);
          if (row.score() < confidence || found.x2() <= found.x1() || found.y2() <= found.y1()) {
            continue;
          }
          System.out.printf(
              Locale.ROOT,
              "{\"class\":%d,\"score\":%.5f,\"box\":[%.4f,%.4f,%.4f,%.4f]}%n",
              found.index(),
              found.score(),
              found.x1(),
              found.y1(),
              found.x2(),
              found.y2());
        }
      }
    }
  }
}
