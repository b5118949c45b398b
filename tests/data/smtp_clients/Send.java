import java.util.Properties;
import javax.mail.Message;
import javax.mail.Session;
import javax.mail.Transport;
import javax.mail.internet.InternetAddress;
import javax.mail.internet.MimeMessage;

class Send {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("mail.smtp.host", words[0]);
        settings.put("mail.smtp.port", words[1]);
        MimeMessage message = new MimeMessage(Session.getInstance(settings));
        message.setFrom(new InternetAddress(words[2]));
        message.setRecipients(Message.RecipientType.TO, words[3]);
        message.setSubject("Hello");
        message.setText("It works.");
        Transport.send(message);
    }
}
